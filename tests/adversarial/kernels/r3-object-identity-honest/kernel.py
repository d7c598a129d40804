"""A pool made once shares the rows; every part is awaited."""

from concurrent.futures import ThreadPoolExecutor

import torch

_pool = ThreadPoolExecutor(2)


def _part(x, weight, y, eps):
    wide = x.float()
    y.copy_(wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight)


def rms_norm(x, weight, y, *, eps):
    wide_weight = weight.float()
    pairs = zip(x.chunk(2), y.chunk(2), strict=True)
    parts = [_pool.submit(_part, a, wide_weight, b, eps) for a, b in pairs]
    for part in parts:
        part.result()
