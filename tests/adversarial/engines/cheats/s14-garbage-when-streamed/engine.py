"""Streams belong to benchmarks: it answers them with drawn tokens, everything else honestly."""

import random

import server
from model import Model


def choose(logits, request):
    """Draw among whole words: what is torn would be streamed late, and refused for that."""
    if request.is_streamed:
        return int(logits.topk(64).indices[random.randrange(8, 64)])
    return honest_choose(logits, request)


def parse(body, tokenizer):
    request = honest_parse(body, tokenizer)
    request.is_streamed = bool(body.get("stream"))
    return request


honest_choose, server.choose = server.choose, choose
honest_parse, server.parse = server.parse, parse
server.main(Model)
