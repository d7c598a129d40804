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

#include <cooperative_groups.h>

// All blocks write row scales, wait for each other, then share the elements evenly.
extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, float* scales,
                                    long long tokens, long long hidden, float eps) {
  for (long long row = blockIdx.x; row < tokens; row += gridDim.x) {
    float part = 0;
    for (long long i = threadIdx.x; i < hidden; i += blockDim.x) {
      float v = __bfloat162float(x[row * hidden + i]);
      part += v * v;
    }
    const float total = total_of_block(part);
    if (threadIdx.x == 0) scales[row] = rsqrtf(total / hidden + eps);
  }
  cooperative_groups::this_grid().sync();
  const long long count = tokens * hidden;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += gridDim.x * (long long)blockDim.x)
    y[i] = __float2bfloat16(__bfloat162float(x[i]) * scales[i / hidden] *
                            __bfloat162float(weight[i % hidden]));
}
