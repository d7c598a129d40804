"""Numbers of eight bits and fewer: values as they are stored, and what a byte of two holds.

Formats are those of PTX: `f8e4m3` and `f8e5m2` have a sign, `ue4m3` and `ue8m0` are scales and
have none, and a byte of `f4e2m1x2` is two 4-bit numbers, the first in its low half.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

PACKED = "f4e2m1x2"
SCALES = ("ue4m3", "ue8m0")
# What the largest element of a row may be; near-duplicates need room for three times the usual.
_MOST: Mapping[str, float] = {
    "f8e4m3": 448.0 / 4,
    "f8e5m2": 57344.0 / 4,
    "ue4m3": 448.0 / 4,
    "ue8m0": 2.0**120,
    PACKED: 6.0,
}
_SMALLEST = 2.0**-126
_STEPS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BETWEEN = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
_SIGN = 8


def values_a_column(dtype: str) -> int:
    """Return how many numbers one element of a tensor holds."""
    return 2 if dtype == PACKED else 1


def in_format(values: Tensor, dtype: str, stored_as: torch.dtype) -> Tensor:
    """Return rows of float32 as `dtype` stores them.

    A row that a narrow format cannot hold is scaled by a power of two: what is cut off at the
    largest number would be the same everywhere.
    """
    if dtype not in _MOST:
        limit = torch.finfo(stored_as).max / 4
        return values.clamp_(-limit, limit).to(stored_as)
    if dtype in SCALES:
        values = values.abs()
    largest = values.abs().amax(-1, keepdim=True).clamp_min(_SMALLEST)
    steps = torch.ceil(torch.log2(largest / _MOST[dtype]))
    if dtype != PACKED:
        steps = steps.clamp_min(0)
    scaled = torch.ldexp(values, -steps)
    return pack(scaled) if dtype == PACKED else scaled.to(stored_as)


def pack(values: Tensor) -> Tensor:
    """Return bytes of two 4-bit numbers each, the nearest to `values`."""
    codes = torch.bucketize(values.abs(), torch.tensor(_BETWEEN, device=values.device))
    codes = codes.to(torch.uint8) + torch.signbit(values).to(torch.uint8) * _SIGN
    return codes[..., 0::2] + codes[..., 1::2] * 16


def unpack(codes: Tensor) -> Tensor:
    """Return the values of bytes of two 4-bit numbers."""
    steps = torch.tensor((*_STEPS, *(-each for each in _STEPS)), device=codes.device)
    both = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2)
    return steps[both.long()]
