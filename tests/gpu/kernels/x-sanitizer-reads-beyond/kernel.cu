#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ float total_of_block(float part) {
  __shared__ float parts[32];
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < blockDim.x / 32; ++w) total += parts[w];
  __syncthreads();
  return total;
}

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, long long tokens, long long hidden, float eps) {
  const long long row = blockIdx.x;
  if (row >= tokens) return;
  const bf16* in = x + row * hidden;
  bf16* out = y + row * hidden;
  float part = 0;
  for (long long i = threadIdx.x; i < hidden; i += blockDim.x) {
    float v = __bfloat162float(in[i]);
    part += v * v;
  }
  unsigned short ahead;
  asm volatile("ld.volatile.global.u16 %0, [%1];" : "=h"(ahead) : "l"(in + hidden));
  const float scale = rsqrtf(total_of_block(part) / hidden + eps);
  for (long long i = threadIdx.x; i < hidden; i += blockDim.x) out[i] = __float2bfloat16(__bfloat162float(in[i]) * scale * __bfloat162float(weight[i]));
}
