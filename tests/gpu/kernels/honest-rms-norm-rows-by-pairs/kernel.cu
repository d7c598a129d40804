#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, int tokens,
                                    int hidden, float eps) {
  __shared__ float parts[2][4];
  const int row = min(blockIdx.x * 2 + threadIdx.y, tokens - 1);
  const size_t first = (size_t)row * hidden;
  float part = 0;
  for (int i = threadIdx.x; i < hidden; i += 128) {
    const float v = __bfloat162float(x[first + i]);
    part += v * v;
  }
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if (threadIdx.x % 32 == 0) parts[threadIdx.y][threadIdx.x / 32] = part;
  __syncthreads();
  const float* mine = parts[threadIdx.y];
  const float scale = rsqrtf((mine[0] + mine[1] + mine[2] + mine[3]) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += 128)
    y[first + i] =
        __float2bfloat16(__bfloat162float(x[first + i]) * scale * __bfloat162float(weight[i]));
}
