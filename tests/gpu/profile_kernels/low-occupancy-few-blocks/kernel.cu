#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void __launch_bounds__(256) rms_norm(const bf16* x, const bf16* weight,
                                                           bf16* y, int tokens, int hidden,
                                                           float eps) {
  __shared__ float parts[8];
  for (int row = blockIdx.x; row < tokens; row += gridDim.x) {
    const size_t start = (size_t)row * hidden;
    float part = 0;
    for (int i = threadIdx.x; i < hidden; i += 256) {
      const float value = __bfloat162float(x[start + i]);
      part += value * value;
    }
    for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
    __syncthreads();
    float total = 0;
    for (int w = 0; w < 8; ++w) total += parts[w];
    const float scale = rsqrtf(total / hidden + eps);
    for (int i = threadIdx.x; i < hidden; i += 256)
      y[start + i] =
          __float2bfloat16(__bfloat162float(x[start + i]) * scale * __bfloat162float(weight[i]));
  }
}
