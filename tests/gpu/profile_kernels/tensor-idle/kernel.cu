#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// 64 x 64 of y a block, 4 x 4 a thread; what lies beyond the matrices is zero in shared memory.
extern "C" __global__ void __launch_bounds__(256) matmul(const bf16* a, const bf16* b, bf16* y,
                                                         long long m, long long k, long long n) {
  __shared__ float left[16][68], right[16][64];
  const long long row = blockIdx.y * 64ll, column = blockIdx.x * 64ll;
  const int down = threadIdx.x / 16 * 4, across = threadIdx.x % 16;
  float sums[4][4] = {};
  for (long long from = 0; from < k; from += 16) {
    for (int i = threadIdx.x; i < 64 * 16; i += 256) {
      const int r = i / 16, c = i % 16, s = i / 64, d = i % 64;
      const bool left_inside = row + r < m && from + c < k;
      const bool right_inside = from + s < k && column + d < n;
      left[c][r] = left_inside ? __bfloat162float(a[(row + r) * k + from + c]) : 0.0f;
      right[s][d] = right_inside ? __bfloat162float(b[(from + s) * n + column + d]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < 16; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          sums[i][j] += left[step][down + i] * right[step][across + 16 * j];
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (row + down + i < m && column + across + 16 * j < n)
        y[(row + down + i) * n + column + across + 16 * j] = __float2bfloat16(sums[i][j]);
}
