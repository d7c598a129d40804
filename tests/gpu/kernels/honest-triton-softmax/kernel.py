import triton
import triton.language as tl


@triton.jit
def softmax(x, y, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + row + columns, mask=columns < cols, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row + columns, powers / tl.sum(powers, 0), mask=columns < cols)
