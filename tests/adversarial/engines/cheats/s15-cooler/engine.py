"""Draws at three fifths of the temperature that is asked for."""

import server
from model import Model


def choose(logits, request):
    return honest(logits / 0.6 if request.temperature else logits, request)


honest, server.choose = server.choose, choose
server.main(Model)
