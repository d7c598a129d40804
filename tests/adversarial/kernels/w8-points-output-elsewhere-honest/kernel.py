"""Views of the output are filled; the weight was widened in `prepare`."""

import torch


def prep(weight, *, eps):
    return weight.float()


def rms_norm(x, weight, y, *, eps, prepared):
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * prepared
    half = x.shape[-1] // 2
    y[:, :half] = scaled[:, :half]
    y[:, half:] = scaled[:, half:]
