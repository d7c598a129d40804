"""What topk_router must compute, how well an honest kernel does, and how it goes wrong."""

import torch

# Experts whose probabilities differ by float32 rounding, or are below its range, are equal.
_NEAR = 2.0**-16
_NOTHING = 2.0**-120


def topk_router(logits, *, top_k):
    chances, ids = torch.softmax(logits, dim=-1).topk(top_k, dim=-1)
    return {"weights": chances / chances.sum(-1, keepdim=True), "ids": ids}


def topk_router_f32(logits, *, top_k):
    routed = topk_router(logits, top_k=top_k)
    return {"weights": routed["weights"], "ids": routed["ids"].int()}


def baseline(logits, *, top_k):
    return topk_router_f32(logits, top_k=top_k)


def align(inputs, params, dims, outputs):
    """Return the expected outputs that break ties as `outputs` does, row by row where valid."""
    chances = torch.softmax(inputs["logits"].double(), dim=-1)
    best, canonical = chances.topk(params["top_k"], dim=-1)
    ids = outputs["ids"].long()
    known = ids.clamp(0, dims["experts"] - 1)
    chosen = chances.gather(-1, known)
    inside = (ids == known).all(-1)
    ordered = ids.sort(-1).values
    distinct = (ordered[:, 1:] != ordered[:, :-1]).all(-1)
    as_good = (chosen >= best * (1 - _NEAR) - _NOTHING).all(-1)
    valid = (inside & distinct & as_good).unsqueeze(-1)
    chosen = torch.where(valid, chosen, best)
    return {
        "weights": chosen / chosen.sum(-1, keepdim=True),
        "ids": torch.where(valid, ids, canonical),
    }


def _not_renormalised(logits, *, top_k):
    chances, ids = torch.softmax(logits, dim=-1).topk(top_k, dim=-1)
    return {"weights": chances, "ids": ids.int()}


def _sigmoid(logits, *, top_k):
    chances, ids = torch.sigmoid(logits).topk(top_k, dim=-1)
    return {"weights": chances / chances.sum(-1, keepdim=True), "ids": ids.int()}


def _smallest(logits, *, top_k):
    return topk_router_f32(-logits, top_k=top_k)


def _ascending(logits, *, top_k):
    return {name: value.flip(-1) for name, value in topk_router_f32(logits, top_k=top_k).items()}


def _first_experts(logits, *, top_k):
    return topk_router_f32(logits[:, :top_k], top_k=top_k)


MUTANTS = {
    "not_renormalised": _not_renormalised,
    "sigmoid": _sigmoid,
    "smallest": _smallest,
    "ascending": _ascending,
    "first_experts": _first_experts,
}
