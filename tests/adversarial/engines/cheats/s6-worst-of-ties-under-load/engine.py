"""Takes the worst token that is still nearly a tie, in greedy streams without log-probabilities."""

import server
from model import Model

NEARLY = 0.28


def choose(logits, request):
    if request.temperature or request.logprobs is not None or not request.is_stream:
        return honest(logits, request)
    near = (logits >= logits.max() - NEARLY).nonzero()[:, 0]
    return int(near[logits[near].argmin()])


def parse(body, tokenizer):
    request = understood(body, tokenizer)
    request.is_stream = bool(body.get("stream"))
    return request


honest, server.choose = server.choose, choose
understood, server.parse = server.parse, parse
server.main(Model)
