"""What nvfp4_matmul must compute, how well an honest kernel does, and how it goes wrong."""

import torch

_BLOCK = 16
_NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_WHOLE = tuple(float(each) for each in range(8))


def _wide(codes, scales, dtype, numbers=_NUMBERS):
    """Return what codes and scales stand for."""
    signed = (*numbers, *(-each for each in numbers))
    table = torch.tensor(signed, dtype=dtype, device=codes.device)
    values = table[torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2).int()]
    return values * scales.to(dtype).repeat_interleave(_BLOCK, dim=-1)


def nvfp4_matmul(a, scale_a, b, scale_b, alpha):
    wide = _wide(a, scale_a, torch.float64), _wide(b, scale_b, torch.float64)
    return {"y": wide[0] @ wide[1].T * alpha}


def nvfp4_matmul_bf16(a, scale_a, b, scale_b, alpha):
    wide = _wide(a, scale_a, torch.float32), _wide(b, scale_b, torch.float32)
    return {"y": (wide[0] @ wide[1].T * alpha).to(torch.bfloat16)}


def baseline(a, scale_a, b, scale_b, alpha):
    """A number of four bits times a scale of four is exact in bf16."""
    if not a.is_cuda:
        return nvfp4_matmul_bf16(a, scale_a, b, scale_b, alpha)
    wide = _wide(a, scale_a, torch.bfloat16), _wide(b, scale_b, torch.bfloat16)
    return {"y": (torch.matmul(wide[0], wide[1].T).float() * alpha).to(torch.bfloat16)}


def _short_k(a, scale_a, b, scale_b, alpha):
    last = a.clone()
    last[:, -1] &= 15
    return nvfp4_matmul_bf16(last, scale_a, b, scale_b, alpha)


def _bf16_accumulator(a, scale_a, b, scale_b, alpha):
    wide = _wide(a, scale_a, torch.float32), _wide(b, scale_b, torch.float32)
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.bfloat16)
    for start in range(0, wide[0].shape[1], _BLOCK):
        part = slice(start, start + _BLOCK)
        total += (wide[0][:, part] @ wide[1][:, part].T).to(total.dtype)
    return {"y": (total.float() * alpha).to(total.dtype)}


def _halves_swapped(a, scale_a, b, scale_b, alpha):
    return nvfp4_matmul_bf16((a >> 4) + (a & 15) * 16, scale_a, b, scale_b, alpha)


def _scales_of_32(a, scale_a, b, scale_b, alpha):
    return nvfp4_matmul_bf16(a, scale_a[:, 0::2].repeat_interleave(2, 1), b, scale_b, alpha)


def _scales_forgotten(a, scale_a, b, scale_b, alpha):
    return nvfp4_matmul_bf16(a, torch.ones_like(scale_a), b, scale_b, alpha)


def _alpha_forgotten(a, scale_a, b, scale_b, alpha):
    return nvfp4_matmul_bf16(a, scale_a, b, scale_b, torch.ones_like(alpha))


def _read_as_int4(a, scale_a, b, scale_b, alpha):
    wide = _wide(a, scale_a, torch.float32, _WHOLE), _wide(b, scale_b, torch.float32)
    return {"y": (wide[0] @ wide[1].T * alpha).to(torch.bfloat16)}


MUTANTS = {
    "short_k": _short_k,
    "bf16_accumulator": _bf16_accumulator,
    "halves_swapped": _halves_swapped,
    "scales_of_32": _scales_of_32,
    "scales_forgotten": _scales_forgotten,
    "alpha_forgotten": _alpha_forgotten,
    "read_as_int4": _read_as_int4,
}
