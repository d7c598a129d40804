"""What reshape_and_cache must do, and how it goes wrong."""

import torch


def reshape_and_cache(key, value, slot_mapping, key_cache, value_cache):
    owner = _owner(slot_mapping, slot_mapping >= 0, key_cache.shape[0])
    return {
        "key_cache": _stored(key, key_cache, owner),
        "value_cache": _stored(value, value_cache, owner),
    }


def _owner(slot_mapping, counts, slots):
    """Return for each slot the last token that `counts` and goes there, -1 if none does."""
    tokens = torch.arange(slot_mapping.shape[0], device=slot_mapping.device)
    places = torch.where(counts, slot_mapping, slots)
    nobody = torch.full((slots + 1,), -1, device=slot_mapping.device)
    return nobody.scatter_reduce(0, places, tokens, "amax")[:slots]


def _stored(new, cache, owner):
    return torch.where(owner[:, None, None] >= 0, new[owner.clamp(min=0)], cache)


def align(inputs, params, dims, outputs):
    """Return the expected caches, with those of the tokens that share a slot which are there."""
    slot_mapping = inputs["slot_mapping"]
    is_real = slot_mapping >= 0
    place = slot_mapping.clamp(min=0)
    is_there = is_real
    for new, cache in (("key", "key_cache"), ("value", "value_cache")):
        is_there = is_there & (outputs[cache][place] == inputs[new]).flatten(1).all(-1)
    any_token = _owner(slot_mapping, is_real, dims["slots"])
    there = _owner(slot_mapping, is_there, dims["slots"])
    owner = torch.where(there >= 0, there, any_token)
    return {
        "key_cache": _stored(inputs["key"], inputs["key_cache"], owner),
        "value_cache": _stored(inputs["value"], inputs["value_cache"], owner),
    }


def baseline(key, value, slot_mapping, key_cache, value_cache):
    is_real = slot_mapping >= 0
    # Padding repeats the first real token; without any, it stores what is there.
    source = torch.where(
        is_real, torch.arange(key.shape[0], device=key.device), is_real.int().argmax()
    )
    place = slot_mapping[source].clamp(min=0)
    keep = is_real[source][:, None, None]
    key_cache[place] = torch.where(keep, key[source], key_cache[place])
    value_cache[place] = torch.where(keep, value[source], value_cache[place])
    return {}


def _next_slot(key, value, slot_mapping, key_cache, value_cache):
    following = torch.where(slot_mapping < 0, -1, (slot_mapping + 1) % key_cache.shape[0])
    return reshape_and_cache(key, value, following, key_cache, value_cache)


def _padding_stored(key, value, slot_mapping, key_cache, value_cache):
    return reshape_and_cache(key, value, slot_mapping % key_cache.shape[0], key_cache, value_cache)


def _value_forgotten(key, value, slot_mapping, key_cache, value_cache):
    made = reshape_and_cache(key, value, slot_mapping, key_cache, value_cache)
    return {**made, "value_cache": value_cache.clone()}


def _swapped(key, value, slot_mapping, key_cache, value_cache):
    return reshape_and_cache(value, key, slot_mapping, key_cache, value_cache)


def _last_token_missing(key, value, slot_mapping, key_cache, value_cache):
    short = slot_mapping.clone()
    short[-1] = -1
    return reshape_and_cache(key, value, short, key_cache, value_cache)


def _slots_in_order(key, value, slot_mapping, key_cache, value_cache):
    rows = torch.arange(slot_mapping.shape[0]) % key_cache.shape[0]
    return reshape_and_cache(key, value, rows, key_cache, value_cache)


MUTANTS = {
    "next_slot": _next_slot,
    "padding_stored": _padding_stored,
    "value_forgotten": _value_forgotten,
    "swapped": _swapped,
    "last_token_missing": _last_token_missing,
    "slots_in_order": _slots_in_order,
}
