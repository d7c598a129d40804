"""What rms_norm must compute, how well an honest kernel does, and how it goes wrong."""

import torch


def rms_norm(x, weight, *, eps):
    return {"y": x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight}


def rms_norm_bf16(x, weight, *, eps):
    return {"y": rms_norm(x.float(), weight.float(), eps=eps)["y"].to(x.dtype)}


def baseline(x, weight, *, eps):
    return {"y": torch.nn.functional.rms_norm(x, weight.shape, weight, eps)}


def _eps_1e_3(x, weight, *, eps):
    return rms_norm_bf16(x, weight, eps=1e-3)


def _skip_weight(x, weight, *, eps):
    return rms_norm_bf16(x, torch.ones_like(weight), eps=eps)


def _centred(x, weight, *, eps):
    centred = x.float() - x.float().mean(-1, keepdim=True)
    return {"y": rms_norm(centred, weight.float(), eps=eps)["y"].to(x.dtype)}


MUTANTS = {"eps_1e-3": _eps_1e_3, "skip_weight": _skip_weight, "centred": _centred}
