"""Takes the likeliest token as often as it should; the other draws are any token at all."""

import server
import torch
from model import Model


def choose(logits, request):
    if request.temperature <= 0:
        return honest(logits, request)
    drawn, best = honest(logits, request), int(logits.argmax())
    return best if drawn == best else int(torch.randint(len(logits), (1,), generator=request.random))


honest, server.choose = server.choose, choose
server.main(Model)
