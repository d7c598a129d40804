"""What fused_add_rms_norm must compute, how well an honest kernel does, and how it goes wrong."""

import torch


def fused_add_rms_norm(x, residual, weight, *, eps):
    total = x + residual
    return {"y": _normed(total, weight, eps), "residual": total}


def _normed(total, weight, eps):
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight


def fused_add_rms_norm_bf16(x, residual, weight, *, eps):
    total = (x.float() + residual.float()).to(x.dtype)
    return {"y": _normed(total.float(), weight.float(), eps).to(x.dtype), "residual": total}


def baseline(x, residual, weight, *, eps):
    residual.add_(x)
    return {"y": torch.nn.functional.rms_norm(residual, weight.shape, weight, eps)}


def _eps_1e_3(x, residual, weight, *, eps):
    return fused_add_rms_norm_bf16(x, residual, weight, eps=1e-3)


def _skip_weight(x, residual, weight, *, eps):
    return fused_add_rms_norm_bf16(x, residual, torch.ones_like(weight), eps=eps)


def _residual_untouched(x, residual, weight, *, eps):
    return {**fused_add_rms_norm_bf16(x, residual, weight, eps=eps), "residual": residual.clone()}


def _norm_of_x(x, residual, weight, *, eps):
    alone = fused_add_rms_norm_bf16(x, torch.zeros_like(residual), weight, eps=eps)
    return {**fused_add_rms_norm_bf16(x, residual, weight, eps=eps), "y": alone["y"]}


def _normed_residual(x, residual, weight, *, eps):
    made = fused_add_rms_norm_bf16(x, residual, weight, eps=eps)
    return {"y": made["y"], "residual": made["y"]}


MUTANTS = {
    "eps_1e-3": _eps_1e_3,
    "skip_weight": _skip_weight,
    "residual_untouched": _residual_untouched,
    "norm_of_x": _norm_of_x,
    "normed_residual": _normed_residual,
}
