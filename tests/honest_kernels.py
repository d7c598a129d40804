"""Honest ways to write kernels of narrow numbers and samplers, other than their yardsticks."""

import random
from collections.abc import Mapping

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]
_KEPT_BITS, _PART, _PROMOTED = 13, 32, 128


def fp8_as_on_hopper(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> Tensors:
    """Keep 14 bits of the running sum, cut, and move it to float32 every 128 elements."""
    total = torch.zeros(a.shape[0], b.shape[0])
    for start in range(0, a.shape[1], _PROMOTED):
        running = torch.zeros_like(total)
        for at in range(start, min(start + _PROMOTED, a.shape[1]), _PART):
            part = slice(at, at + _PART)
            left, right = a[:, part].float(), b[:, part].float()
            largest = left.abs() @ right.abs().T / _PART + running.abs()
            _, exponent = torch.frexp(largest.clamp_min(2.0**-40))
            step = torch.ldexp(torch.ones_like(total), exponent - _KEPT_BITS)
            running = torch.trunc((running + left @ right.T) / step) * step
        total += running
    return {"y": (total * scale_a.unsqueeze(1) * scale_b).bfloat16()}


def fp8_scaled_first(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor) -> Tensors:
    product = a.float() @ b.float().T
    return {"y": (product * (scale_a.unsqueeze(1) * scale_b)).bfloat16()}


def nvfp4_block_by_block(
    a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor, alpha: Tensor
) -> Tensors:
    numbers = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = torch.cat([numbers, -numbers])
    left, right = (torch.stack((each & 15, each >> 4), -1).flatten(-2).long() for each in (a, b))
    total = torch.zeros(a.shape[0], b.shape[0])
    for block in range(scale_a.shape[1]):
        part = slice(16 * block, 16 * block + 16)
        product = table[left[:, part]] @ table[right[:, part]].T
        total += product * scale_a[:, block].float().unsqueeze(1) * scale_b[:, block].float()
    return {"y": (alpha * total).bfloat16()}


def nvfp4_by_reciprocals(x: Tensor, global_scale: Tensor) -> Tensors:
    """Multiply by reciprocals that are off by a few roundoffs, as fast device code does."""
    off = 1.0 + 2.0**-22
    blocks = x.float().view(x.shape[0], -1, 16)
    most = global_scale * (blocks.abs().amax(-1) * (off / 6.0))
    scales = most.clamp(max=448.0).to(torch.float8_e4m3fn)
    wide = scales.float().unsqueeze(-1)
    factor = torch.where(wide > 0, off / (wide * (1.0 / global_scale)), 0.0)
    values = (blocks * factor).flatten(-2)
    codes = torch.zeros_like(values, dtype=torch.uint8)
    for number, (edge, up) in enumerate(
        ((0.25, 0), (0.75, 1), (1.25, 0), (1.75, 1), (2.5, 0), (3.5, 1), (5.0, 0)), start=1
    ):
        over = values.abs() >= edge if up else values.abs() > edge
        codes = torch.where(over, torch.full_like(codes, number), codes)
    codes |= (values < 0).to(torch.uint8) << 3  # zeros without their sign
    return {"codes": codes[..., 0::2] | codes[..., 1::2] << 4, "scales": scales}


def _floats(values: Tensor) -> list[float]:
    return [float(each) for each in values]


def _kept_in_order(row: Tensor, top_k: int, top_p: float) -> tuple[list[int], list[float]]:
    order = sorted(range(row.numel()), key=lambda place: (-row[place].item(), place))[:top_k]
    powers = torch.exp(row[order] - row[order[0]])
    shares, total, kept = _floats(powers / powers.sum()), 0.0, list[int]()
    for place, share in zip(order, shares, strict=True):
        if total >= top_p and kept:
            break
        kept.append(place)
        total += share
    kept.sort()
    return kept, _floats(torch.exp(row[kept] - row[order[0]]))


def sample_row_by_row(logits: Tensor, uniform: Tensor, *, top_k: int, top_p: float) -> Tensors:
    ids: list[int] = []
    for row, number in zip(logits, _floats(uniform), strict=True):
        kept, weights = _kept_in_order(row, top_k, top_p)
        target, total, chosen = number * sum(weights), 0.0, kept[-1]
        for place, weight in zip(kept, weights, strict=True):
            total += weight
            if total > target:
                chosen = place
                break
        ids.append(chosen)
    return {"ids": torch.tensor(ids, dtype=torch.int32)}


def sample_by_mersenne(logits: Tensor, seeds: Tensor, *, top_k: int, top_p: float) -> Tensors:
    known = {seed: random.Random(seed).random() for seed in {*_floats(seeds)}}
    numbers = torch.tensor([known[seed] for seed in _floats(seeds)])
    rows: list[Tensor] = []
    for row in logits:
        kept, weights = _kept_in_order(row, top_k, top_p)
        running = torch.tensor(weights).cumsum(0)
        places = torch.searchsorted(running, numbers * running[-1], right=True)
        rows.append(torch.tensor(kept)[places.clamp(max=len(kept) - 1)].int())
    return {"ids": torch.stack(rows)}
