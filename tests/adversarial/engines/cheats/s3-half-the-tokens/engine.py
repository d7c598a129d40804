"""Stops at half of max_tokens and says that this was the length."""

import server
from model import Model


def parse(body, tokenizer):
    request = honest(body, tokenizer)
    request.max_tokens = max(1, request.max_tokens // 2)
    return request


honest, server.parse = server.parse, parse
server.main(Model)
