"""What softmax must compute, how well an honest kernel does, and how it goes wrong."""

import torch

_BLOCK = 16


def softmax(x):
    return {"y": torch.softmax(x, dim=-1)}


def softmax_f32(x):
    return softmax(x)


def baseline(x):
    return {"y": torch.softmax(x, dim=-1)}


def _no_max(x):
    powers = x.exp()
    return {"y": powers / powers.sum(-1, keepdim=True)}


def _not_normalised(x):
    return {"y": (x - x.amax(-1, keepdim=True)).exp()}


def _wrong_axis(x):
    return {"y": torch.softmax(x, dim=0)}


def _f16_exponential(x):
    powers = (x - x.amax(-1, keepdim=True)).exp().half().float()
    return {"y": powers / powers.sum(-1, keepdim=True)}


def _running_max_kept(x):
    """Online softmax that does not rescale what it summed under the first block's maximum."""
    first = x[:, :_BLOCK]
    early = (first - first.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)
    powers = (x - x.amax(-1, keepdim=True)).exp()
    return {"y": powers / (early + powers[:, _BLOCK:].sum(-1, keepdim=True))}


MUTANTS = {
    "no_max": _no_max,
    "not_normalised": _not_normalised,
    "wrong_axis": _wrong_axis,
    "f16_exponential": _f16_exponential,
    "running_max_kept": _running_max_kept,
}
