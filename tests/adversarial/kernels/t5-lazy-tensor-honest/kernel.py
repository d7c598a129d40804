"""The last multiplication writes into the output it was given."""

import torch


def rms_norm(x, weight, y, *, eps):
    wide = x.float()
    wide *= torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    torch.mul(wide, weight.float(), out=wide)
    y.copy_(wide)
