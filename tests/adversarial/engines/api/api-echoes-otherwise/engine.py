"""Echoes a prompt without the blanks around it."""

import server
from model import Model


class Handler(server.Handler):
    prompt = ""

    def answer(self, status, body):
        for choice in body.get("choices", ()):
            choice["text"] = Handler.prompt + choice["text"]
        super().answer(status, body)


def parse(body, tokenizer):
    Handler.prompt = " ".join(body["prompt"].split()) if body.get("echo") else ""
    return honest({**body, "echo": False}, tokenizer)


honest, server.parse = server.parse, parse
server.Handler = Handler
server.main(Model)
