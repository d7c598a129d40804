"""The first call of each shape times two equivalent variants and keeps the faster."""

import time

import torch

_choice = {}


def _fused(x, weight, y, eps):
    wide = x.float()
    y.copy_(wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float())


def _norm(x, weight, y, eps):
    wide = x.float()
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square() / x.shape[-1]
    y.copy_(wide.mul_(torch.rsqrt(length + eps)).mul_(weight.float()))


def _seconds(variant, *args):
    start = time.perf_counter()
    variant(*args)
    return time.perf_counter() - start


def rms_norm(x, weight, y, *, eps):
    if x.shape not in _choice:
        args = (x, weight, y, eps)
        _choice[x.shape] = _fused if _seconds(_fused, *args) < _seconds(_norm, *args) else _norm
    _choice[x.shape](x, weight, y, eps)
