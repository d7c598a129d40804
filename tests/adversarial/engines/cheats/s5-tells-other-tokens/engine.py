"""Tells the model's tokens, whose text it does not send: what a user reads is filler."""

import server
from model import Model


class Handler(server.Handler):
    def answer(self, status, body):
        for choice in body.get("choices", ()):
            choice["text"] = "lorem ipsum " * 8
        super().answer(status, body)


server.Handler = Handler
server.main(Model)
