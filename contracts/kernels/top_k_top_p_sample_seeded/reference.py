"""What a seeded sampler must do, how an honest one does it, and how it goes wrong."""

import torch

# Sums in float32 differ by less; nearer to an edge than this, either side is right.
_NEAR = 2.0**-14
_UNLIKELY = 1e-9
_LEAST_EXPECTED = 8.0
_LEAST_DEVIATION, _FAR = 3.0, 12.0


def _count(logits, top_k, top_p):
    """Return the top_k logits in descending order, and how many of them are kept."""
    values = logits.topk(top_k, dim=-1).values
    chances = torch.softmax(values, dim=-1)
    before = chances.cumsum(-1) - chances
    return values, (before < top_p).sum(-1, keepdim=True).clamp_min(1)


def _chances(logits, top_k, top_p):
    """Return every token's probability: 0 but for the first by descending logit and then by id."""
    values, count = _count(logits, top_k, top_p)
    last = values.gather(-1, count - 1)
    above, equal = logits > last, logits == last
    missing = count - above.sum(-1, keepdim=True)
    kept = above | (equal & (equal.cumsum(-1) <= missing))
    powers = torch.where(kept, torch.exp(logits - values[:, :1]), 0.0)
    return powers / powers.sum(-1, keepdim=True)


def _mixed(seeds):
    """Return a number in (0, 1) for each seed; neighbours have nothing in common."""
    state = seeds * -7046029254386353131
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685), (31, 1)):
        state = (state ^ ((state >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return (((state >> 12) & ((1 << 40) - 1)).double() + 0.5) / (1 << 40)


def _drawn(chances, numbers):
    running = chances.double().cumsum(-1)
    target = numbers.to(running.dtype) * running[:, -1:]
    found = torch.searchsorted(running, target, right=True)
    return {"ids": found.clamp(max=chances.shape[-1] - 1).int()}


def sample(logits, seeds, *, top_k, top_p):
    return _drawn(_chances(logits, top_k, top_p), _mixed(seeds))


def sample_f32(logits, seeds, *, top_k, top_p):
    return sample(logits, seeds, top_k=top_k, top_p=top_p)


def baseline(logits, seeds, *, top_k, top_p):
    return sample(logits, seeds, top_k=top_k, top_p=top_p)


def _is_unclear(row, top_k, top_p):
    """Return whether float32 may keep other tokens: sums or unequal logits at the edge."""
    values, count = _count(row, top_k, top_p)
    chances = torch.softmax(values, dim=-1)
    before = chances.cumsum(-1) - chances
    near_p = ((before - top_p).abs() < _NEAR)[:, 1:].any()
    further = row.topk(top_k + 1, dim=-1).values
    steps = further[:, :-1] - further[:, 1:]
    near_logit = (steps > 0) & (steps < _NEAR * (1.0 + further[:, 1:].abs()))
    return bool(near_p | near_logit.gather(-1, count - 1).any() | near_logit[:, -1].any())


def _is_supported(row, ids, top_k, top_p):
    values, count = _count(row, top_k, top_p)
    edge = values.gather(-1, count.clamp(max=top_k - 1)).item()
    return bool((row[0, ids] >= edge - _NEAR * (1.0 + abs(edge))).all())


def _is_random(chances, ids):
    """Return whether `ids`, in the order of their seeds, are a sample by two tests.

    A chi-square test says whether they are as frequent as they should be, the other whether
    neighbouring seeds agree more often than by chance. Missing seeds have the id -1.
    """
    seen = ids[ids >= 0]
    wanted = chances * seen.numel()
    counted = torch.bincount(seen, minlength=chances.numel()).double()
    often = wanted >= _LEAST_EXPECTED
    rest = wanted[~often].sum()
    terms = (counted[often] - wanted[often]).square() / wanted[often]
    total, bins = terms.sum(), terms.numel()
    if rest >= _LEAST_EXPECTED:
        total, bins = total + (counted[~often].sum() - rest).square() / rest, bins + 1
    freedom = torch.tensor(max(1.0, bins - 1.0), dtype=torch.float64, device=total.device)
    chance = torch.special.gammaincc(freedom / 2, total / 2).item()
    return chance > _UNLIKELY and not _is_in_turn(chances, ids)


def _is_in_turn(chances, ids):
    pairs = (ids[1:] >= 0) & (ids[:-1] >= 0)
    equal = chances.square().sum()
    deviation = (pairs.sum() * equal * (1 - equal)).sqrt().item()
    more = ((ids[1:] == ids[:-1]) & pairs).sum() - pairs.sum() * equal
    return deviation >= _LEAST_DEVIATION and more.item() > _FAR * deviation


def _is_valid(row, ids, seeds, params, vocab):
    if not bool(((ids >= 0) & (ids < vocab)).all()):
        return False
    first = torch.full((int(seeds.max()) + 1,), -1, dtype=ids.dtype, device=ids.device)
    first[seeds] = ids
    if not bool((first[seeds] == ids).all()):
        return False
    chances = _chances(row, **params).squeeze(0)
    if _is_unclear(row, **params):
        return _is_supported(row, ids, **params)
    return bool((chances[ids] > 0).all()) and _is_random(chances, first)


def align(inputs, params, dims, outputs):
    """Return the candidate's own ids in each row that is a sample, other ids in any other row."""
    logits, seeds = inputs["logits"].double(), inputs["seeds"]
    expected = outputs["ids"].clone()
    for place, ids in enumerate(outputs["ids"].long()):
        if not _is_valid(logits[place : place + 1], ids, seeds, params, dims["vocab"]):
            expected[place] = (ids.int() + 1) % dims["vocab"]
    return {"ids": expected}


def _most_likely(logits, seeds, *, top_k, top_p):
    return {"ids": logits.argmax(-1, keepdim=True).int().expand(-1, seeds.numel())}


def _any_kept(logits, seeds, *, top_k, top_p):
    return _drawn((_chances(logits, top_k, top_p) > 0).float(), _mixed(seeds))


def _top_k_forgotten(logits, seeds, *, top_k, top_p):
    return sample(logits, seeds, top_k=logits.shape[-1], top_p=top_p)


def _top_p_forgotten(logits, seeds, *, top_k, top_p):
    return sample(logits, seeds, top_k=top_k, top_p=1.0)


def _seeds_forgotten(logits, seeds, *, top_k, top_p):
    places = torch.arange(seeds.numel(), device=seeds.device)
    return sample(logits, places, top_k=top_k, top_p=top_p)


def _seeds_in_turn(logits, seeds, *, top_k, top_p):
    return _drawn(_chances(logits, top_k, top_p), (seeds.double() + 0.5) / (seeds.max() + 1))


def _warmer(logits, seeds, *, top_k, top_p):
    return sample(logits / 1.5, seeds, top_k=top_k, top_p=top_p)


MUTANTS = {
    "most_likely": _most_likely,
    "any_kept": _any_kept,
    "top_k_forgotten": _top_k_forgotten,
    "top_p_forgotten": _top_p_forgotten,
    "seeds_forgotten": _seeds_forgotten,
    "seeds_in_turn": _seeds_in_turn,
    "warmer": _warmer,
}
