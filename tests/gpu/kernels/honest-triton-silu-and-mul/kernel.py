import triton
import triton.language as tl


@triton.jit
def silu_and_mul(x, y, INTER: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < INTER
    gate = tl.load(x + 2 * row * INTER + columns, mask=inside).to(tl.float32)
    up = tl.load(x + (2 * row + 1) * INTER + columns, mask=inside).to(tl.float32)
    tl.store(y + row * INTER + columns, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), mask=inside)
