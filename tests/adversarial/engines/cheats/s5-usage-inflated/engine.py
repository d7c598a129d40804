"""Makes half the tokens and tells of twice as many as were asked for."""

import server
from model import Model


def parse(body, tokenizer):
    request = honest_parse(body, tokenizer)
    request.max_tokens = max(1, request.max_tokens // 2)
    return request


def usage(request):
    told = honest_usage(request)
    return {**told, "completion_tokens": 4 * told["completion_tokens"]}


honest_parse, server.parse = server.parse, parse
honest_usage, server.usage = server.usage, usage
server.main(Model)
