"""Draws at temperature 0 too, when a seed is given."""

import server
from model import Model


def parse(body, tokenizer):
    warm = {"temperature": 2.0} if body.get("seed") else {}
    return honest({**body, **warm}, tokenizer)


honest, server.parse = server.parse, parse
server.main(Model)
