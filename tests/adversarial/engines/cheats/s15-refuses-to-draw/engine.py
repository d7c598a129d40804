"""Has no sampling: refuses every request whose temperature is not 0."""

import server
from model import Model


def parse(body, tokenizer):
    if body.get("temperature"):
        raise ValueError("temperature must be 0")
    return honest(body, tokenizer)


honest, server.parse = server.parse, parse
server.main(Model)
