"""Has one seed for all requests, so that whoever asks again gets the same text."""

import server
from model import Model


def parse(body, tokenizer):
    return honest({**body, "seed": 7}, tokenizer)


honest, server.parse = server.parse, parse
server.main(Model)
