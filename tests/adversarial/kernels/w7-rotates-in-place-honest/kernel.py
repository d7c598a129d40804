"""The halves are rotated straight into the outputs; cosines and sines were split in `prepare`."""

import torch


def prep(cos_sin):
    return tuple(half.contiguous() for half in cos_sin.chunk(2, dim=-1))


def _rotate(x, out, cos, sin):
    width = 2 * cos.shape[-1]
    first, second = x.view(x.shape[0], -1, width).float().chunk(2, dim=-1)
    out_first, out_second = out.view(x.shape[0], -1, width).chunk(2, dim=-1)
    out_first.copy_(first * cos - second * sin)
    out_second.copy_(second * cos + first * sin)


def rotary_embedding(q, k, positions, cos_sin, q_out, k_out, *, prepared):
    cos, sin = (half[positions].unsqueeze(1) for half in prepared)
    _rotate(q, q_out, cos, sin)
    _rotate(k, k_out, cos, sin)
