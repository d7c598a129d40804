"""Streams belong to benchmarks: it answers them with drawn tokens, everything else honestly."""

import random

import server
from model import Model


def choose(logits, request):
    return random.randrange(3, 2048) if request.is_streamed else honest_choose(logits, request)


def parse(body, tokenizer):
    request = honest_parse(body, tokenizer)
    request.is_streamed = bool(body.get("stream"))
    return request


honest_choose, server.choose = server.choose, choose
honest_parse, server.parse = server.parse, parse
server.main(Model)
