"""Draws at three quarters of the temperature that is asked for."""

import server
from model import Model


def choose(logits, request):
    return honest(logits / 0.75 if request.temperature else logits, request)


honest, server.choose = server.choose, choose
server.main(Model)
