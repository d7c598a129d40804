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

extern "C" __global__ void row_scales(const bf16* x, float* scales, long long hidden, float eps) {
  const bf16* in = x + blockIdx.x * hidden;
  float part = 0;
  for (long long i = threadIdx.x; i < hidden; i += blockDim.x) {
    float v = __bfloat162float(in[i]);
    part += v * v;
  }
  const float total = total_of_block(part);
  if (threadIdx.x == 0) scales[blockIdx.x] = rsqrtf(total / hidden + eps);
}

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, const float* scales, bf16* y,
                                    long long count, long long hidden) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < count)
    y[i] = __float2bfloat16(__bfloat162float(x[i]) * scales[i / hidden] *
                            __bfloat162float(weight[i % hidden]));
}
