"""What matmul must compute, how well an honest kernel does, and how it goes wrong."""

import torch

_BLOCK = 8


def matmul(a, b):
    return {"y": a @ b}


def matmul_bf16(a, b):
    return {"y": (a.float() @ b.float()).to(a.dtype)}


def baseline(a, b):
    return {"y": torch.matmul(a, b)}


def _short_k(a, b):
    return matmul_bf16(a[:, :-1], b[:-1])


def _bf16_accumulator(a, b):
    total = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype)
    for start in range(0, a.shape[1], _BLOCK):
        stop = start + _BLOCK
        total += (a[:, start:stop].float() @ b[start:stop].float()).to(a.dtype)
    return {"y": total}


def _shifted_rows(a, b):
    return matmul_bf16(a.roll(1, dims=1), b)


MUTANTS = {
    "short_k": _short_k,
    "bf16_accumulator": _bf16_accumulator,
    "shifted_rows": _shifted_rows,
}
