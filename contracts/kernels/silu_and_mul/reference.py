"""What silu_and_mul must compute, how well an honest kernel does, and how it goes wrong."""

import torch
from torch.nn import functional


def silu_and_mul(x):
    gate, up = x.chunk(2, dim=-1)
    return {"y": functional.silu(gate) * up}


def silu_and_mul_bf16(x):
    return {"y": silu_and_mul(x.float())["y"].to(x.dtype)}


def baseline(x):
    gate, up = x.chunk(2, dim=-1)
    return {"y": functional.silu(gate) * up}


def _swapped_halves(x):
    gate, up = x.chunk(2, dim=-1)
    return silu_and_mul_bf16(torch.cat([up, gate], dim=-1))


def _interleaved(x):
    return silu_and_mul_bf16(torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1))


def _gelu(x):
    gate, up = x.float().chunk(2, dim=-1)
    return {"y": (functional.gelu(gate, approximate="tanh") * up).to(x.dtype)}


def _no_gate(x):
    gate, up = x.float().chunk(2, dim=-1)
    return {"y": (gate * up).to(x.dtype)}


MUTANTS = {
    "swapped_halves": _swapped_halves,
    "interleaved": _interleaved,
    "gelu": _gelu,
    "no_gate": _no_gate,
}
