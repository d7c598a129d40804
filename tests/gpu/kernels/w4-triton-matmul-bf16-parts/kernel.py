import triton
import triton.language as tl


@triton.jit
def matmul(a, b, y, m, k, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    terms = tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.bfloat16)
    for start in range(0, k, BK):
        left = tl.load(
            a + rows[:, None] * k + start + terms[None, :],
            mask=(rows[:, None] < m) & (start + terms[None, :] < k),
            other=0.0,
        )
        right = tl.load(
            b + (start + terms[:, None]) * n + columns[None, :],
            mask=(start + terms[:, None] < k) & (columns[None, :] < n),
            other=0.0,
        )
        total = (total + tl.dot(left, right)).to(tl.bfloat16)
    tl.store(
        y + rows[:, None] * n + columns[None, :],
        total.to(tl.bfloat16),
        mask=(rows[:, None] < m) & (columns[None, :] < n),
    )
