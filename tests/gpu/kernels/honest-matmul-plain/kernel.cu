#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void matmul(const bf16* a, const bf16* b, bf16* y, int m, int k, int n) {
  const int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i)
    sum += __bfloat162float(a[(size_t)row * k + i]) * __bfloat162float(b[(size_t)i * n + column]);
  y[(size_t)row * n + column] = __float2bfloat16(sum);
}
