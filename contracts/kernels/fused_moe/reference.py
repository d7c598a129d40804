"""What fused_moe must compute, how well an honest kernel does, and how it goes wrong."""

import torch
from torch.nn.functional import silu


def fused_moe(x, w13, w2, topk_weights, topk_ids):
    return {"y": _moe(x, w13, w2, topk_weights, topk_ids, torch.float64)}


def _moe(x, w13, w2, topk_weights, topk_ids, rounded):
    """Return the weighted sum over experts, with what passes between steps rounded to a dtype."""
    total = torch.zeros_like(x)
    for expert in topk_ids.unique().tolist():
        tokens, choice = (topk_ids == expert).nonzero(as_tuple=True)
        gate, up = (x[tokens] @ w13[expert].T).to(rounded).to(x.dtype).chunk(2, dim=-1)
        middle = (silu(gate) * up).to(rounded).to(x.dtype)
        share = (middle @ w2[expert].T) * topk_weights[tokens, choice].unsqueeze(1)
        total.index_add_(0, tokens, share.to(rounded).to(x.dtype))
    return total


def fused_moe_bf16(x, w13, w2, topk_weights, topk_ids):
    tensors = (x.float(), w13.float(), w2.float(), topk_weights)
    return {"y": _moe(*tensors, topk_ids, x.dtype).to(x.dtype)}


def baseline(x, w13, w2, topk_weights, topk_ids):
    """All experts on all tokens: with few tokens an expert, reading the weights is what costs."""
    experts = w13.shape[0]
    gate, up = torch.matmul(x, w13.transpose(1, 2)).chunk(2, dim=-1)
    shares = torch.matmul(silu(gate.float()).mul(up).to(x.dtype), w2.transpose(1, 2))
    table = torch.zeros(x.shape[0], experts, device=x.device)
    table = table.scatter_add(1, topk_ids.long(), topk_weights)
    return {"y": torch.einsum("eth,te->th", shares.float(), table).to(x.dtype)}


def _unweighted(x, w13, w2, topk_weights, topk_ids):
    return fused_moe_bf16(x, w13, w2, torch.ones_like(topk_weights), topk_ids)


def _gate_and_up_swapped(x, w13, w2, topk_weights, topk_ids):
    swapped = w13.roll(w13.shape[1] // 2, dims=1)
    return fused_moe_bf16(x, swapped, w2, topk_weights, topk_ids)


def _first_choice_only(x, w13, w2, topk_weights, topk_ids):
    first = topk_weights.clone()
    first[:, 1:] = 0
    return fused_moe_bf16(x, w13, w2, first, topk_ids)


def _next_expert(x, w13, w2, topk_weights, topk_ids):
    return fused_moe_bf16(x, w13, w2, topk_weights, (topk_ids + 1) % w13.shape[0])


def _no_activation(x, w13, w2, topk_weights, topk_ids):
    total = torch.zeros(x.shape)
    for token in range(x.shape[0]):
        for weight, expert in zip(topk_weights[token], topk_ids[token].tolist(), strict=True):
            gate, up = (w13[expert].float() @ x[token].float()).chunk(2)
            total[token] += weight * (w2[expert].float() @ (gate * up))
    return {"y": total.to(x.dtype)}


def _experts_once(x, w13, w2, topk_weights, topk_ids):
    again = (topk_ids.unsqueeze(1) == topk_ids.unsqueeze(2)).tril(-1).any(-1)
    return fused_moe_bf16(x, w13, w2, topk_weights.masked_fill(again, 0.0), topk_ids)


MUTANTS = {
    "unweighted": _unweighted,
    "gate_and_up_swapped": _gate_and_up_swapped,
    "first_choice_only": _first_choice_only,
    "next_expert": _next_expert,
    "no_activation": _no_activation,
    "experts_once": _experts_once,
}
