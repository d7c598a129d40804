"""Numpy sees the same memory; the sum is made there in double precision."""

import numpy
import torch


def rms_norm(x, weight, y, *, eps):
    wide = x.float().numpy()
    mean = numpy.square(wide, dtype=numpy.float64).mean(-1, keepdims=True)
    scale = (1.0 / numpy.sqrt(mean + eps)).astype(numpy.float32)
    y.copy_(torch.from_numpy(wide * scale * weight.float().numpy()))
