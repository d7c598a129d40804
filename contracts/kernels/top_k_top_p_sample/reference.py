"""What top_k_top_p_sample must compute, how well an honest kernel does, and how it goes wrong."""

import torch

# Running sums in float32 differ by less; nearer to an edge than this, either side is right.
_NEAR = 2.0**-14
_BELOW_ONE = 1.0 - 2.0**-23


def _count(logits, top_k, top_p):
    """Return the top_k logits in descending order, and how many of them are kept."""
    values = logits.topk(top_k, dim=-1).values
    chances = torch.softmax(values, dim=-1)
    before = chances.cumsum(-1) - chances
    return values, (before < top_p).sum(-1, keepdim=True).clamp_min(1)


def _kept(logits, values, count):
    """Return which tokens are the first `count` by descending logit and then by id."""
    last = values.gather(-1, count - 1)
    above, equal = logits > last, logits == last
    missing = count - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= missing))


def _running(logits, values, kept):
    return torch.where(kept, torch.exp(logits - values[:, :1]), 0.0).cumsum(-1)


def _drawn(running, uniform):
    target = uniform.to(running.dtype).clamp(max=_BELOW_ONE).unsqueeze(1) * running[:, -1:]
    return (running > target).to(torch.int32).argmax(-1).int()


def top_k_top_p_sample(logits, uniform, *, top_k, top_p):
    values, count = _count(logits, top_k, top_p)
    return {"ids": _drawn(_running(logits, values, _kept(logits, values, count)), uniform)}


def top_k_top_p_sample_f32(logits, uniform, *, top_k, top_p):
    return top_k_top_p_sample(logits, uniform, top_k=top_k, top_p=top_p)


def baseline(logits, uniform, *, top_k, top_p):
    return top_k_top_p_sample(logits, uniform, top_k=top_k, top_p=top_p)


def _is_unclear(logits, values, count, top_k, top_p):
    """Return in which rows float32 may keep other tokens: sums or unequal logits at the edge."""
    chances = torch.softmax(values, dim=-1)
    before = chances.cumsum(-1) - chances
    near_p = ((before - top_p).abs() < _NEAR)[:, 1:].any(-1)
    further = logits.topk(top_k + 1, dim=-1).values
    steps = further[:, :-1] - further[:, 1:]
    near_logit = (steps > 0) & (steps < _NEAR * (1.0 + further[:, 1:].abs()))
    return near_p | near_logit.gather(-1, count - 1).squeeze(-1) | near_logit[:, -1]


def align(inputs, params, dims, outputs):
    """Return the expected ids, with the candidate's own where they are as right."""
    logits, uniform = inputs["logits"].double(), inputs["uniform"].double()
    values, count = _count(logits, params["top_k"], params["top_p"])
    kept = _kept(logits, values, count)
    running = _running(logits, values, kept)
    expected = _drawn(running, uniform)
    own = outputs["ids"].long()
    known = own.clamp(0, dims["vocab"] - 1).unsqueeze(1)
    share = running / running[:, -1:]
    after = share.gather(-1, known).squeeze(1)
    before = torch.where(known > 0, share.gather(-1, (known - 1).clamp_min(0)), 0.0).squeeze(1)
    hit = (before - _NEAR <= uniform) & (uniform <= after + _NEAR)
    strict = kept.gather(-1, known).squeeze(1) & hit
    unclear = _is_unclear(logits, values, count, params["top_k"], params["top_p"])
    edge = values.gather(-1, (count.clamp(max=params["top_k"] - 1))).squeeze(1)
    supported = logits.gather(-1, known).squeeze(1) >= edge - _NEAR * (1.0 + edge.abs())
    valid = (own == known.squeeze(1)) & (strict | (unclear & supported))
    return {"ids": torch.where(valid, own.int(), expected)}


def _most_likely(logits, uniform, *, top_k, top_p):
    return {"ids": logits.argmax(-1).int()}


def _any_kept(logits, uniform, *, top_k, top_p):
    values, count = _count(logits, top_k, top_p)
    return {"ids": _drawn(_kept(logits, values, count).float().cumsum(-1), uniform)}


def _top_k_forgotten(logits, uniform, *, top_k, top_p):
    return top_k_top_p_sample(logits, uniform, top_k=logits.shape[-1], top_p=top_p)


def _top_p_forgotten(logits, uniform, *, top_k, top_p):
    return top_k_top_p_sample(logits, uniform, top_k=top_k, top_p=1.0)


def _by_descending_chance(logits, uniform, *, top_k, top_p):
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    made = top_k_top_p_sample(logits.gather(-1, order), uniform, top_k=top_k, top_p=top_p)
    return {"ids": order.gather(-1, made["ids"].long().unsqueeze(1)).squeeze(1).int()}


def _one_number_for_all(logits, uniform, *, top_k, top_p):
    return top_k_top_p_sample(logits, torch.full_like(uniform, 0.5), top_k=top_k, top_p=top_p)


def _ties_by_higher_id(logits, uniform, *, top_k, top_p):
    values, count = _count(logits, top_k, top_p)
    kept = _kept(logits.flip(-1), values, count).flip(-1)
    return {"ids": _drawn(_running(logits, values, kept), uniform)}


MUTANTS = {
    "most_likely": _most_likely,
    "any_kept": _any_kept,
    "top_k_forgotten": _top_k_forgotten,
    "top_p_forgotten": _top_p_forgotten,
    "by_descending_chance": _by_descending_chance,
    "one_number_for_all": _one_number_for_all,
    "ties_by_higher_id": _ties_by_higher_id,
}
