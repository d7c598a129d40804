#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void __launch_bounds__(256) matmul(const bf16* a, const bf16* b, bf16* y, int m,
                                                         int k, int n) {
  __shared__ float left[16][65], right[16][65];
  const int row = blockIdx.y * 64, column = blockIdx.x * 64;
  const int flat = threadIdx.y * 16 + threadIdx.x;
  float sums[4][4] = {};
  for (int from = 0; from < k; from += 16) {
    for (int i = flat; i < 16 * 64; i += 256) {
      const int r = i / 16, c = i % 16;
      left[c][r] = row + r < m && from + c < k
                       ? __bfloat162float(a[(size_t)(row + r) * k + from + c]) : 0.0f;
      const int d = i / 64, e = i % 64;
      right[d][e] = from + d < k && column + e < n
                        ? __bfloat162float(b[(size_t)(from + d) * n + column + e]) : 0.0f;
    }
    __syncthreads();
    for (int step = 0; step < 16; ++step)
      for (int r = 0; r < 4; ++r)
        for (int c = 0; c < 4; ++c)
          sums[r][c] += left[step][threadIdx.y * 4 + r] * right[step][threadIdx.x * 4 + c];
    __syncthreads();
  }
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 4; ++c) {
      const int i = row + threadIdx.y * 4 + r, j = column + threadIdx.x * 4 + c;
      if (i < m && j < n) y[(size_t)i * n + j] = __float2bfloat16(sums[r][c]);
    }
}
