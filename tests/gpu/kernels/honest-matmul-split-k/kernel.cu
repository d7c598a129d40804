#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// Four blocks share the terms of each 16 x 16 of y; their parts meet in the workspace.
extern "C" __global__ void matmul_parts(const bf16* a, const bf16* b, float* parts, int m, int k,
                                        int n) {
  __shared__ float left[16][17], right[16][17];
  const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  const int share = (k + 3) / 4, first = blockIdx.z * share, last = min(k, first + share);
  float sum = 0;
  for (int from = first; from < last; from += 16) {
    const int c = from + threadIdx.x, r = from + threadIdx.y;
    left[threadIdx.y][threadIdx.x] =
        row < m && c < last ? __bfloat162float(a[(size_t)row * k + c]) : 0.0f;
    right[threadIdx.y][threadIdx.x] =
        r < last && column < n ? __bfloat162float(b[(size_t)r * n + column]) : 0.0f;
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) parts[((size_t)blockIdx.z * m + row) * n + column] = sum;
}

extern "C" __global__ void matmul(const float* parts, bf16* y, long long count) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < count)
    y[i] = __float2bfloat16(parts[i] + parts[count + i] + parts[2 * count + i] + parts[3 * count + i]);
}
