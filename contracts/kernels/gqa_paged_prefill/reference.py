"""What gqa_paged_prefill must compute, how well an honest kernel does, and how it goes wrong."""

import torch


def gqa_paged_prefill(q, k_cache, v_cache, block_table, prefix_lens):
    return {"o": _prefill(q, k_cache, v_cache, block_table, prefix_lens, torch.float64)}


def _prefill(q, k_cache, v_cache, block_table, prefix_lens, rounded, *, ahead=0):
    seen = zip(q, block_table.long(), prefix_lens.tolist(), strict=True)
    return torch.stack([_attend(*each, k_cache, v_cache, rounded, ahead) for each in seen])


def _attend(q, table, prefix, k_cache, v_cache, rounded, ahead):
    """Return the chunk of one sequence; query j sees `ahead` tokens more than its own."""
    length = prefix + q.shape[0]
    pages = table[: -(-length // k_cache.shape[1])]
    k, v = (cache[pages].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
    grouped = q.unflatten(1, (k.shape[1], -1))
    scores = torch.einsum("jkgd,lkd->kgjl", grouped, k) * q.shape[-1] ** -0.5
    last = torch.arange(q.shape[0], device=q.device) + prefix + ahead
    hidden = torch.arange(length, device=q.device) > last.clamp(min=0).unsqueeze(1)
    scores = scores.masked_fill(hidden, -torch.inf)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    products = torch.einsum("kgjl,lkd->kgjd", powers.to(rounded).to(v.dtype), v)
    return (products / powers.sum(-1, keepdim=True)).permute(2, 0, 1, 3).flatten(1, 2)


def gqa_paged_prefill_bf16(q, k_cache, v_cache, block_table, prefix_lens, *, ahead=0):
    tensors = (q.float(), k_cache.float(), v_cache.float())
    made = _prefill(*tensors, block_table, prefix_lens, q.dtype, ahead=ahead)
    return {"o": made.to(q.dtype)}


def baseline(q, k_cache, v_cache, block_table, prefix_lens):
    gathered = (cache[block_table.long()].flatten(1, 2) for cache in (k_cache, v_cache))
    k, v = (each.transpose(1, 2) for each in gathered)
    groups = q.shape[2] // k.shape[1]
    k, v = (each.repeat_interleave(groups, dim=1) for each in (k, v))
    last = prefix_lens.unsqueeze(1) + torch.arange(q.shape[1], device=q.device)
    seen = torch.arange(k.shape[2], device=q.device) <= last.unsqueeze(2)
    attend = torch.nn.functional.scaled_dot_product_attention
    return {"o": attend(q.transpose(1, 2), k, v, attn_mask=seen[:, None]).transpose(1, 2)}


def _not_causal(q, k_cache, v_cache, block_table, prefix_lens):
    far = q.shape[1]
    return gqa_paged_prefill_bf16(q, k_cache, v_cache, block_table, prefix_lens, ahead=far)


def _one_ahead(q, k_cache, v_cache, block_table, prefix_lens):
    return gqa_paged_prefill_bf16(q, k_cache, v_cache, block_table, prefix_lens, ahead=1)


def _own_key_missing(q, k_cache, v_cache, block_table, prefix_lens):
    return gqa_paged_prefill_bf16(q, k_cache, v_cache, block_table, prefix_lens, ahead=-1)


def _prefix_ignored(q, k_cache, v_cache, block_table, prefix_lens):
    nothing = torch.zeros_like(prefix_lens)
    return gqa_paged_prefill_bf16(q, k_cache, v_cache, block_table, nothing)


def _not_scaled(q, k_cache, v_cache, block_table, prefix_lens):
    scaled = (q.float() * q.shape[-1] ** 0.5).to(q.dtype)
    return gqa_paged_prefill_bf16(scaled, k_cache, v_cache, block_table, prefix_lens)


def _heads_interleaved(q, k_cache, v_cache, block_table, prefix_lens):
    groups = q.shape[2] // k_cache.shape[2]
    order = torch.arange(q.shape[2]).view(groups, -1).t().flatten()
    made = gqa_paged_prefill_bf16(q[:, :, order], k_cache, v_cache, block_table, prefix_lens)
    return {"o": made["o"][:, :, order.argsort()]}


def _table_ignored(q, k_cache, v_cache, block_table, prefix_lens):
    first = torch.arange(block_table.shape[1]) % k_cache.shape[0]
    table = first.expand_as(block_table)
    return gqa_paged_prefill_bf16(q, k_cache, v_cache, table, prefix_lens)


MUTANTS = {
    "not_causal": _not_causal,
    "one_ahead": _one_ahead,
    "own_key_missing": _own_key_missing,
    "prefix_ignored": _prefix_ignored,
    "not_scaled": _not_scaled,
    "heads_interleaved": _heads_interleaved,
    "table_ignored": _table_ignored,
}
