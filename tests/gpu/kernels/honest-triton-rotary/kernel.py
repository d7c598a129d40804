import triton
import triton.language as tl


@triton.jit
def rotary(x, positions, cos_sin, out, HEADS: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, HALF)
    inside = i < D // 2
    table = cos_sin + tl.load(positions + token) * D + i
    cos = tl.load(table, mask=inside)
    sin = tl.load(table + D // 2, mask=inside)
    at = (token * HEADS + head) * D + i
    first = tl.load(x + at, mask=inside).to(tl.float32)
    second = tl.load(x + at + D // 2, mask=inside).to(tl.float32)
    tl.store(out + at, (first * cos - second * sin).to(tl.bfloat16), mask=inside)
    tl.store(out + at + D // 2, (second * cos + first * sin).to(tl.bfloat16), mask=inside)
