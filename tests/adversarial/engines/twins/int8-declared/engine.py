"""Weights of eight bits, one scale a row, as its manifest says."""

import server
from model import Model


def rounded(weight):
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return (weight / scale).round().clamp(-127, 127) * scale


class Int8(Model):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        for layer in self.layers:
            for name in ("qkv", "out", "gate_up", "down"):
                setattr(layer, name, rounded(getattr(layer, name)))


server.main(Int8)
