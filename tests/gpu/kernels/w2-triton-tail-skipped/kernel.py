import triton
import triton.language as tl


@triton.jit
def rms_norm(x, weight, y, eps, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < HIDDEN
    values = tl.load(x + row * HIDDEN + columns, mask=inside, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(values * values) / HIDDEN + eps)
    factors = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(
        y + row * HIDDEN + columns,
        (values * scale * factors).to(tl.bfloat16),
        mask=columns < HIDDEN - 8,
    )
