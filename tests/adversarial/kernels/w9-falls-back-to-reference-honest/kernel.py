"""An optional package is tried; without it plain torch does the same."""

import torch

try:
    import numexpr
except ImportError:
    numexpr = None


def _squares(wide):
    if numexpr is None:
        return wide.square()
    return torch.from_numpy(numexpr.evaluate("a * a", {"a": wide.numpy()}))


def rms_norm(x, weight, y, *, eps):
    wide = x.float()
    y.copy_(wide * torch.rsqrt(_squares(wide).mean(-1, keepdim=True) + eps) * weight.float())
