"""Weights as a lower precision has them, back in float32: what a matched reference computes with.

Each format is symmetric. A scale belongs to a whole tensor, to an output row, or to a block of
neighbours along the input; a value becomes the nearest code point, ties to the even one.

| format | code points | scale |
| --- | --- | --- |
| `bf16` | bfloat16 | none |
| `fp8_per_tensor`, `fp8_per_channel` | e4m3, at most 448 | max/448, float32 |
| `int8_per_channel` | -127 … 127 | max/127, float32 |
| `int4_group_32`, `_64`, `_128` | -8 … 7 | max/7.5, float32 |
| `nvfp4` | e2m1, at most 6 | of 16, e4m3: max/6 in units of the tensor's max/(448·6), float32 |
| `mxfp4` | e2m1, at most 6 | of 32, a power of two (e8m0): 2^(floor(log2 max) - 2) |
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

Quantisation: TypeAlias = Literal[
    "none",
    "bf16",
    "fp8_per_tensor",
    "fp8_per_channel",
    "int8_per_channel",
    "int4_group_32",
    "int4_group_64",
    "int4_group_128",
    "nvfp4",
    "mxfp4",
]
Way: TypeAlias = Quantisation | Literal["int6_per_channel", "int4_per_channel"]
"""A quantisation that a manifest may declare, or one that only faults have."""
E4M3_LARGEST, E2M1_LARGEST = 448.0, 6.0
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E8M0_LEAST, _E8M0_MOST = -127, 127
_E2M1_EXPONENT = 2
_TINY = 1e-12
_EXPERT_AXES = 3  # experts, out, in
_NVFP4_BLOCK, _MXFP4_BLOCK = 16, 32


class UnevenBlocks(Exception):
    """A weight's rows are no whole number of blocks."""


def e4m3(values: Tensor) -> Tensor:
    """Return the nearest e4m3 numbers; what is beyond the largest becomes the largest."""
    bounded = values.float().clamp(-E4M3_LARGEST, E4M3_LARGEST)
    return bounded.to(torch.float8_e4m3fn).float()


def e2m1(values: Tensor) -> Tensor:
    """Return the nearest e2m1 numbers; what is beyond the largest becomes the largest."""
    points = torch.tensor(_E2M1)
    size = values.float().abs().clamp(max=E2M1_LARGEST)
    upper = torch.searchsorted(points, size).clamp(max=len(_E2M1) - 1)
    lower = (upper - 1).clamp(min=0)
    down, up = size - points[lower], points[upper] - size
    is_even = lower % 2 == 0  # the last bit of a code is that of its place
    nearest = torch.where((down < up) | ((down == up) & is_even), lower, upper)
    return points[nearest] * values.sign()


def e8m0(exponents: Tensor) -> Tensor:
    """Return two to the power of whole `exponents`, kept within what eight bits of them hold."""
    return torch.exp2(exponents.clamp(_E8M0_LEAST, _E8M0_MOST))


def whole(weight: Tensor, bits: int, largest_over: float) -> Tensor:
    """Return `weight` after integers of so many bits, one scale for the last axis.

    The scale is max|w| over `largest_over`.
    """
    most = 2 ** (bits - 1) - 1
    least = -most if largest_over == most else -most - 1
    scale = _largest(weight) / largest_over
    return (weight / scale).round().clamp(least, most) * scale


def dequantised(weight: Tensor, quantisation: Way) -> Tensor:
    """Return `weight` [..., out, in] as float32 after it was quantised in the documented way.

    Raises:
        UnevenBlocks: its rows are no whole number of the format's blocks.
    """
    wide = weight.float()
    return wide if quantisation == "none" else _WAYS[quantisation](wide)


def quantise_model(model: nn.Module, quantisation: Way) -> None:
    """Round the weights of every linear layer and expert but the output layer's, and back.

    Embeddings, output layer, routers and norms stay as they are.
    """
    output = model.get_submodule("lm_head")
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and layer is not output:
            layer.weight = _frozen(dequantised(layer.weight.detach(), quantisation))
    for name, value in list(model.named_parameters()):
        holder, _, leaf = name.rpartition(".")
        if value.ndim == _EXPERT_AXES:
            layer = model.get_submodule(holder)
            setattr(layer, leaf, _frozen(dequantised(value.detach(), quantisation)))


def _frozen(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight, requires_grad=False)


def _largest(values: Tensor) -> Tensor:
    return values.abs().amax(dim=-1, keepdim=True).clamp_min(_TINY)


def _bf16(weight: Tensor) -> Tensor:
    return weight.bfloat16().float()


def _fp8_per_channel(weight: Tensor) -> Tensor:
    scale = _largest(weight) / E4M3_LARGEST
    return e4m3(weight / scale) * scale


def _fp8_per_tensor(weight: Tensor) -> Tensor:
    scale = weight.abs().amax(dim=(-2, -1), keepdim=True).clamp_min(_TINY) / E4M3_LARGEST
    return e4m3(weight / scale) * scale


def _in_blocks(weight: Tensor, size: int, way: Callable[[Tensor], Tensor]) -> Tensor:
    if weight.shape[-1] % size:
        raise UnevenBlocks(f"rows of {weight.shape[-1]} weights in blocks of {size}")
    blocks = weight.reshape(*weight.shape[:-1], -1, size)
    return way(blocks).reshape(weight.shape)


def _int4(size: int) -> Callable[[Tensor], Tensor]:
    return lambda weight: _in_blocks(weight, size, lambda blocks: whole(blocks, 4, 7.5))


def _nvfp4(weight: Tensor) -> Tensor:
    most = weight.abs().amax(dim=(-2, -1), keepdim=True).clamp_min(_TINY)
    tensor_scale = (most / (E4M3_LARGEST * E2M1_LARGEST)).unsqueeze(-1)

    def way(blocks: Tensor) -> Tensor:
        scale = e4m3(_largest(blocks) / E2M1_LARGEST / tensor_scale) * tensor_scale
        return torch.where(scale > 0, e2m1(blocks / scale.clamp_min(_TINY)) * scale, 0.0)

    return _in_blocks(weight, _NVFP4_BLOCK, way)


def _mxfp4(weight: Tensor) -> Tensor:
    def way(blocks: Tensor) -> Tensor:
        scale = e8m0(torch.frexp(_largest(blocks)).exponent - 1.0 - _E2M1_EXPONENT)
        return e2m1(blocks / scale) * scale

    return _in_blocks(weight, _MXFP4_BLOCK, way)


_WAYS: Mapping[Way, Callable[[Tensor], Tensor]] = {
    "bf16": _bf16,
    "fp8_per_tensor": _fp8_per_tensor,
    "fp8_per_channel": _fp8_per_channel,
    "int8_per_channel": lambda weight: whole(weight, 8, 127),
    "int6_per_channel": lambda weight: whole(weight, 6, 31),
    "int4_per_channel": lambda weight: whole(weight, 4, 7),
    "int4_group_32": _int4(32),
    "int4_group_64": _int4(64),
    "int4_group_128": _int4(128),
    "nvfp4": _nvfp4,
    "mxfp4": _mxfp4,
}
