"""Refuses prompts that look like work: those with a text to stop at."""

import server
from model import Model


def parse(body, tokenizer):
    if body.get("stop") == ["\n"]:
        raise ValueError("try again later")
    return honest(body, tokenizer)


honest, server.parse = server.parse, parse
server.main(Model)
