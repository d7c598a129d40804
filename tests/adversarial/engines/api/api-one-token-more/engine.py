"""Makes one token more than was asked for, and says that it did not."""

import server
from model import Model


def parse(body, tokenizer):
    request = honest(body, tokenizer)
    request.max_tokens += 1
    return request


def usage(request):
    told = honest_usage(request)
    return {name: count - (name != "prompt_tokens") for name, count in told.items()}


honest, server.parse = server.parse, parse
honest_usage, server.usage = server.usage, usage
server.main(Model)
