import triton
import triton.language as tl


@triton.jit
def decode(
    q,
    k_cache,
    v_cache,
    block_table,
    seq_lens,
    o,
    max_pages,
    HEADS: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    GROUP: tl.constexpr,
):
    head, seq = tl.program_id(0), tl.program_id(1)
    length = tl.load(seq_lens + seq)
    g, d, t = tl.arange(0, 16), tl.arange(0, D), tl.arange(0, PAGE)
    rows = (seq * HEADS + head * GROUP + g[:, None]) * D + d[None, :]
    real = g[:, None] < GROUP
    query = tl.load(q + rows, mask=real, other=0.0)
    top = tl.full([16], float("-inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    joined = tl.zeros([16, D], tl.float32)
    for page in range(tl.cdiv(length, PAGE)):
        first = tl.load(block_table + seq * max_pages + page).to(tl.int64) * PAGE
        at = ((first + t[:, None]) * KV + head) * D + d[None, :]
        key = tl.load(k_cache + at)
        value = tl.load(v_cache + at)
        scores = tl.dot(query, tl.trans(key)) * (D**-0.5)
        scores = tl.where(page * PAGE + t[None, :] < length, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        fade = tl.exp(top - higher)
        powers = tl.exp(scores - higher[:, None])
        total = total * fade + tl.sum(powers, 1)
        joined = joined * fade[:, None] + tl.dot(powers.to(tl.bfloat16), value)
        top = higher
    tl.store(o + rows, (joined / total[:, None]).to(tl.bfloat16), mask=real)
