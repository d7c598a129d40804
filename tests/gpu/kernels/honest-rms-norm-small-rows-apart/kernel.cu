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

__device__ void one_row(const bf16* in, const bf16* weight, bf16* out, int hidden, float eps) {
  float part = 0;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    const float v = __bfloat162float(in[i]);
    part += v * v;
  }
  const float scale = rsqrtf(total_of_block(part) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    out[i] = __float2bfloat16(__bfloat162float(in[i]) * scale * __bfloat162float(weight[i]));
}

__device__ void row_of_a_warp(const bf16* in, const bf16* weight, bf16* out, int hidden, float eps) {
  float part = 0;
  for (int i = threadIdx.x % 32; i < hidden; i += 32) {
    const float v = __bfloat162float(in[i]);
    part += v * v;
  }
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  const float scale = rsqrtf(part / hidden + eps);
  for (int i = threadIdx.x % 32; i < hidden; i += 32)
    out[i] = __float2bfloat16(__bfloat162float(in[i]) * scale * __bfloat162float(weight[i]));
}

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, int tokens,
                                    int hidden, float eps) {
  if (tokens <= 64) {
    const size_t first = (size_t)blockIdx.x * hidden;
    one_row(x + first, weight, y + first, hidden, eps);
    return;
  }
  for (int row = blockIdx.x * 32 + threadIdx.x / 32; row < tokens; row += gridDim.x * 32) {
    const size_t first = (size_t)row * hidden;
    row_of_a_warp(x + first, weight, y + first, hidden, eps);
  }
}
