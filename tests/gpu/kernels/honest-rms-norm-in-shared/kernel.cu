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

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, int hidden,
                                    float eps) {
  extern __shared__ float row[];
  const size_t first = (size_t)blockIdx.x * hidden;
  float part = 0;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    row[i] = __bfloat162float(x[first + i]);
    part = fmaf(row[i], row[i], part);
  }
  const float scale = 1 / sqrtf(total_of_block(part) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    y[first + i] = __float2bfloat16(row[i] * scale * __bfloat162float(weight[i]));
}
