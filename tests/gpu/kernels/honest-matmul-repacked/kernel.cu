#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void repack(const bf16* b, bf16* turned, int k, int n) {
  __shared__ bf16 tile[32][33];
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
  for (int r = threadIdx.y; r < 32; r += 8)
    if (row + r < k && column < n) tile[r][threadIdx.x] = b[(size_t)(row + r) * n + column];
  __syncthreads();
  for (int c = threadIdx.y; c < 32; c += 8)
    if (blockIdx.x * 32 + c < n && row + threadIdx.x < k)
      turned[(size_t)(blockIdx.x * 32 + c) * k + row + threadIdx.x] = tile[threadIdx.x][c];
}

extern "C" __global__ void matmul(const bf16* a, const bf16* turned, bf16* y, int k, int n) {
  const int column = blockIdx.x * 8 + threadIdx.y;
  if (column >= n) return;
  const bf16 *left = a + (size_t)blockIdx.y * k, *right = turned + (size_t)column * k;
  float sum = 0;
  for (int i = threadIdx.x; i < k; i += 32)
    sum += __bfloat162float(left[i]) * __bfloat162float(right[i]);
  for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x == 0) y[(size_t)blockIdx.y * n + column] = __float2bfloat16(sum);
}
