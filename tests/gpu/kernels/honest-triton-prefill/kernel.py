import triton
import triton.language as tl


@triton.jit
def prefill(
    q,
    k_cache,
    v_cache,
    block_table,
    prefix_lens,
    o,
    chunk,
    columns,
    HEADS: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    GROUP: tl.constexpr,
):
    head, seq = tl.program_id(0), tl.program_id(1)
    prefix = tl.load(prefix_lens + seq)
    j, d, t = tl.program_id(2) * 32 + tl.arange(0, 32), tl.arange(0, D), tl.arange(0, PAGE)
    rows = ((seq * chunk + j[:, None]) * HEADS + head) * D + d[None, :]
    real = j[:, None] < chunk
    query = tl.load(q + rows, mask=real, other=0.0)
    top = tl.full([32], -1.0e30, tl.float32)
    total = tl.zeros([32], tl.float32)
    joined = tl.zeros([32, D], tl.float32)
    last = tl.minimum(prefix + chunk, prefix + tl.program_id(2) * 32 + 32)
    for page in range(tl.cdiv(last, PAGE)):
        first = tl.load(block_table + seq * columns + page).to(tl.int64) * PAGE
        at = ((first + t[:, None]) * KV + head // GROUP) * D + d[None, :]
        key = tl.load(k_cache + at)
        value = tl.load(v_cache + at)
        scores = tl.dot(query, tl.trans(key)) * (D**-0.5)
        seen = page * PAGE + t[None, :] <= prefix + j[:, None]
        higher = tl.maximum(top, tl.max(tl.where(seen, scores, -1.0e30), 1))
        fade = tl.exp(top - higher)
        powers = tl.where(seen, tl.exp(scores - higher[:, None]), 0.0)
        total = total * fade + tl.sum(powers, 1)
        joined = joined * fade[:, None] + tl.dot(powers.to(tl.bfloat16), value)
        top = higher
    tl.store(o + rows, (joined / total[:, None]).to(tl.bfloat16), mask=real)
