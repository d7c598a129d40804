"""What gqa_paged_decode must compute, how well an honest kernel does, and how it goes wrong."""

import torch


def gqa_paged_decode(q, k_cache, v_cache, block_table, seq_lens):
    return {"o": _decode(q, k_cache, v_cache, block_table, seq_lens, torch.float64)}


def _decode(q, k_cache, v_cache, block_table, seq_lens, rounded):
    seen = zip(q, block_table.long(), seq_lens.tolist(), strict=True)
    return torch.stack([_attend(*each, k_cache, v_cache, rounded) for each in seen])


def _attend(q, table, length, k_cache, v_cache, rounded):
    """Return the heads of one sequence, with probabilities rounded to a dtype."""
    pages = table[: -(-length // k_cache.shape[1])]
    k, v = (cache[pages].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
    grouped = q.unflatten(0, (k.shape[1], -1))
    scores = torch.einsum("kgd,lkd->kgl", grouped, k) * q.shape[-1] ** -0.5
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    products = torch.einsum("kgl,lkd->kgd", powers.to(rounded).to(v.dtype), v)
    return (products / powers.sum(-1, keepdim=True)).flatten(0, 1)


def gqa_paged_decode_bf16(q, k_cache, v_cache, block_table, seq_lens):
    tensors = (q.float(), k_cache.float(), v_cache.float())
    return {"o": _decode(*tensors, block_table, seq_lens, q.dtype).to(q.dtype)}


def baseline(q, k_cache, v_cache, block_table, seq_lens):
    gathered = (cache[block_table.long()].flatten(1, 2) for cache in (k_cache, v_cache))
    k, v = (each.transpose(1, 2) for each in gathered)
    seen = torch.arange(k.shape[2], device=q.device) < seq_lens.unsqueeze(1)
    grouped = q.unflatten(1, (k.shape[1], -1))
    attend = torch.nn.functional.scaled_dot_product_attention
    return {"o": attend(grouped, k, v, attn_mask=seen[:, None, None]).flatten(1, 2)}


def _sees_padding(q, k_cache, v_cache, block_table, seq_lens):
    size = k_cache.shape[1]
    whole = (seq_lens + size - 1) // size * size
    return gqa_paged_decode_bf16(q, k_cache, v_cache, block_table, whole)


def _last_token_missing(q, k_cache, v_cache, block_table, seq_lens):
    return gqa_paged_decode_bf16(q, k_cache, v_cache, block_table, (seq_lens - 1).clamp(min=1))


def _not_scaled(q, k_cache, v_cache, block_table, seq_lens):
    scaled = (q.float() * q.shape[-1] ** 0.5).to(q.dtype)
    return gqa_paged_decode_bf16(scaled, k_cache, v_cache, block_table, seq_lens)


def _heads_interleaved(q, k_cache, v_cache, block_table, seq_lens):
    groups = q.shape[1] // k_cache.shape[2]
    order = torch.arange(q.shape[1]).view(groups, -1).t().flatten()
    made = gqa_paged_decode_bf16(q[:, order], k_cache, v_cache, block_table, seq_lens)
    return {"o": made["o"][:, order.argsort()]}


def _table_ignored(q, k_cache, v_cache, block_table, seq_lens):
    first = torch.arange(block_table.shape[1]) % k_cache.shape[0]
    table = first.expand_as(block_table)
    return gqa_paged_decode_bf16(q, k_cache, v_cache, table, seq_lens)


def _first_page_only(q, k_cache, v_cache, block_table, seq_lens):
    short = seq_lens.clamp(max=k_cache.shape[1])
    return gqa_paged_decode_bf16(q, k_cache, v_cache, block_table, short)


MUTANTS = {
    "sees_padding": _sees_padding,
    "last_token_missing": _last_token_missing,
    "not_scaled": _not_scaled,
    "heads_interleaved": _heads_interleaved,
    "table_ignored": _table_ignored,
    "first_page_only": _first_page_only,
}
