"""Ends each streamed answer one token early and says that this was the length."""

import server
from model import Model


def parse(body, tokenizer):
    short = {"max_tokens": body["max_tokens"] - 1} if body.get("stream") else {}
    return honest({**body, **short}, tokenizer)


honest, server.parse = server.parse, parse
server.main(Model)
