"""Gives two choices of one index for n 2, the second of which is empty."""

import server
from model import Model


class Handler(server.Handler):
    def answer(self, status, body):
        choices = body.get("choices", ())
        if choices and self.twice:
            body = {**body, "choices": [*choices, {**choices[0], "text": ""}]}
        super().answer(status, body)


def parse(body, tokenizer):
    server.Handler.twice = body.get("n") == 2
    return honest({**body, "n": 1}, tokenizer)


server.Handler.twice = False
honest, server.parse = server.parse, parse
server.Handler = Handler
server.main(Model)
