"""Leaves out the log-probabilities of poor answers, beyond the few tokens that a probe asks for."""

import server
from model import Model

PROBED = 8


def columns(events):
    told = honest(events)
    poor = [at for at, value in enumerate(told["token_logprobs"]) if at >= PROBED and value < -1.0]
    for index in poor:
        told["top_logprobs"][index] = None
        told["token_logprobs"][index] = float("nan")
    return told


honest, server.columns = server.columns, columns
server.main(Model)
