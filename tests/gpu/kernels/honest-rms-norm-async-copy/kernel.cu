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

#include <cuda_pipeline.h>

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, int hidden,
                                    float eps) {
  extern __shared__ uint4 row[];
  const uint4* from = reinterpret_cast<const uint4*>(x + (size_t)blockIdx.x * hidden);
  for (int i = threadIdx.x; i < hidden / 8; i += blockDim.x)
    __pipeline_memcpy_async(&row[i], &from[i], 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  const bf16* in = reinterpret_cast<const bf16*>(row);
  float part = 0;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    const float v = __bfloat162float(in[i]);
    part += v * v;
  }
  const float scale = rsqrtf(total_of_block(part) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    y[(size_t)blockIdx.x * hidden + i] =
        __float2bfloat16(__bfloat162float(in[i]) * scale * __bfloat162float(weight[i]));
}
