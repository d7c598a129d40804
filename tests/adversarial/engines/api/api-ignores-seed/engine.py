"""Draws anew whatever seed it is given."""

import server
from model import Model


def parse(body, tokenizer):
    return honest({**body, "seed": None}, tokenizer)


honest, server.parse = server.parse, parse
server.main(Model)
