#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// 64 elements a thread at the most, in an array that cannot lie in registers: its index is data.
extern "C" __global__ void __launch_bounds__(128) rms_norm(const bf16* x, const bf16* weight,
                                                           bf16* y, int hidden, float eps) {
  __shared__ float parts[4];
  const size_t start = (size_t)blockIdx.x * hidden;
  float mine[64];
  float part = 0;
#pragma unroll 1
  for (int i = 0; i < hidden / 128; ++i) {
    const float value = __bfloat162float(x[start + i * 128 + threadIdx.x]);
    mine[(i + hidden) & 63] = value;
    part += value * value;
  }
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  const float scale = rsqrtf((parts[0] + parts[1] + parts[2] + parts[3]) / hidden + eps);
#pragma unroll 1
  for (int i = 0; i < hidden / 128; ++i) {
    const int at = i * 128 + threadIdx.x;
    y[start + at] =
        __float2bfloat16(mine[(i + hidden) & 63] * scale * __bfloat162float(weight[at]));
  }
}
