"""A seeded self-test runs when this is loaded; calls depend on their inputs alone."""

import torch


def rms_norm(x, weight, y, *, eps):
    wide = x.float()
    y.copy_(wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float())


def _self_test():
    torch.manual_seed(0)
    x, y = torch.randn(3, 64).bfloat16(), torch.empty(3, 64).bfloat16()
    rms_norm(x, torch.ones(64).bfloat16(), y, eps=1e-6)
    if not torch.isfinite(y).all():
        raise RuntimeError("the self-test gave numbers that are not finite")


_self_test()
