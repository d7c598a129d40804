import triton
import triton.language as tl


@triton.jit
def fused_add_rms_norm(x, residual, weight, y, eps, HIDDEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * HIDDEN
    columns = tl.arange(0, BLOCK)
    inside = columns < HIDDEN
    total = tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(residual + row + columns, mask=inside, other=0.0).to(tl.float32)
    stored = total.to(tl.bfloat16)
    tl.store(residual + row + columns, stored, mask=inside)
    values = stored.to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(values * values) / HIDDEN + eps)
    factors = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row + columns, (values * scale * factors).to(tl.bfloat16), mask=inside)
