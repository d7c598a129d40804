"""What matmul_fp8 must compute, how well an honest kernel does, and how it goes wrong."""

import torch

_BLOCK = 8


def matmul_fp8(a, scale_a, b, scale_b):
    return {"y": (a @ b.T) * scale_a.unsqueeze(1) * scale_b}


def matmul_fp8_bf16(a, scale_a, b, scale_b):
    product = a.float() @ b.float().T
    return {"y": (product * scale_a.unsqueeze(1) * scale_b).to(torch.bfloat16)}


def baseline(a, scale_a, b, scale_b):
    if not a.is_cuda:
        return matmul_fp8_bf16(a, scale_a, b, scale_b)
    scales = (scale_a.unsqueeze(1), scale_b.unsqueeze(0))
    return {"y": torch._scaled_mm(a, b.T, *scales, out_dtype=torch.bfloat16)}


def _short_k(a, scale_a, b, scale_b):
    return matmul_fp8_bf16(a[:, :-1], scale_a, b[:, :-1], scale_b)


def _bf16_accumulator(a, scale_a, b, scale_b):
    total = torch.zeros(a.shape[0], b.shape[0], dtype=torch.bfloat16)
    for start in range(0, a.shape[1], _BLOCK):
        part = slice(start, start + _BLOCK)
        total += (a[:, part].float() @ b[:, part].float().T).to(total.dtype)
    return {"y": (total.float() * scale_a.unsqueeze(1) * scale_b).to(total.dtype)}


def _one_scale_for_all(a, scale_a, b, scale_b):
    return matmul_fp8_bf16(a, scale_a[:1].expand_as(scale_a), b, scale_b[:1].expand_as(scale_b))


def _scales_swapped(a, scale_a, b, scale_b):
    most = max(scale_a.numel(), scale_b.numel())
    rows, columns = (each.repeat(most)[:most] for each in (scale_b, scale_a))
    return matmul_fp8_bf16(a, rows[: a.shape[0]], b, columns[: b.shape[0]])


def _read_as_e5m2(a, scale_a, b, scale_b):
    other = a.view(torch.float8_e5m2).float().nan_to_num(0.0, 0.0, 0.0)
    return matmul_fp8_bf16(other, scale_a, b, scale_b)


MUTANTS = {
    "short_k": _short_k,
    "bf16_accumulator": _bf16_accumulator,
    "one_scale_for_all": _one_scale_for_all,
    "scales_swapped": _scales_swapped,
    "read_as_e5m2": _read_as_e5m2,
}
