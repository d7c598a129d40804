"""Takes the worst token that is still nearly a tie, as a lenient check of drafts may at its worst."""

import server
from model import Model

NEARLY = 0.28


def choose(logits, request):
    if request.temperature:
        return honest(logits, request)
    near = (logits >= logits.max() - NEARLY).nonzero()[:, 0]
    return int(near[logits[near].argmin()])


honest, server.choose = server.choose, choose
server.main(Model)
