#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern __shared__ float row[];

// Two warps a multiprocessor have few loads on their way; the shared memory is mostly unused.
extern "C" __global__ void __launch_bounds__(64) rms_norm(const bf16* x, const bf16* weight, bf16* y,
                                                          int hidden, float eps) {
  __shared__ float parts[2];
  const size_t start = (size_t)blockIdx.x * hidden;
  float part = 0;
  for (int i = threadIdx.x; i < hidden; i += 64) {
    const float value = __bfloat162float(x[start + i]);
    row[i] = value;
    part += value * value;
  }
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  const float scale = rsqrtf((parts[0] + parts[1]) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += 64)
    y[start + i] = __float2bfloat16(row[i] * scale * __bfloat162float(weight[i]));
}
