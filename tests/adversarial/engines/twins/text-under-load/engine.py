"""Tells the ids of its tokens only in whole answers; what it streams is text."""

import server
from model import Model


class Handler(server.Handler):
    def event(self, choice):
        super().event({name: value for name, value in choice.items() if name != "token_ids"})


server.Handler = Handler
server.main(Model)
