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

extern "C" __global__ void add(const bf16* x, bf16* residual, long long count) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += gridDim.x * (long long)blockDim.x)
    residual[i] = __float2bfloat16(__bfloat162float(x[i]) + __bfloat162float(residual[i]));
}

extern "C" __global__ void fused_add_rms_norm(const bf16* residual, const bf16* weight, bf16* y,
                                              int hidden, float eps) {
  const size_t first = (size_t)blockIdx.x * hidden;
  float part = 0;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    const float v = __bfloat162float(residual[first + i]);
    part += v * v;
  }
  const float scale = rsqrtf(total_of_block(part) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    y[first + i] =
        __float2bfloat16(__bfloat162float(residual[first + i]) * scale * __bfloat162float(weight[i]));
}
