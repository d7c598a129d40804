"""Scratch memory is an attribute of the function; it is overwritten before it is read."""

import torch


def rms_norm(x, weight, y, *, eps):
    scratch = rms_norm.scratch
    if scratch is None or scratch.numel() < x.numel():
        scratch = rms_norm.scratch = torch.empty(x.numel())
    wide = scratch[: x.numel()].view(x.shape)
    wide.copy_(x)
    wide.mul_(torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).mul_(weight.float())
    y.copy_(wide)


rms_norm.scratch = None
