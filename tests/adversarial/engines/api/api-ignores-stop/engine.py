"""Goes on after the text that it was to stop at."""

import server
from model import Model


def parse(body, tokenizer):
    return honest({**body, "stop": None}, tokenizer)


honest, server.parse = server.parse, parse
server.main(Model)
