"""Always takes the likeliest token, whatever temperature is asked for."""

import server
from model import Model

server.choose = lambda logits, request: int(logits.argmax())
server.main(Model)
