#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, int tokens,
                                    int hidden, float eps) {
  const int row = blockIdx.x * 8 + threadIdx.y;
  if (row >= tokens) return;
  const bf16* in = x + (size_t)row * hidden;
  float part = 0;
  for (int i = threadIdx.x; i < hidden; i += 32) {
    const float v = __bfloat162float(in[i]);
    part += v * v;
  }
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  const float scale = rsqrtf(part / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += 32)
    y[(size_t)row * hidden + i] =
        __float2bfloat16(__bfloat162float(in[i]) * scale * __bfloat162float(weight[i]));
}
