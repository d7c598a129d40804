#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void silu_and_mul(const bf16* x, bf16* y, int inter) {
  const bf16* in = x + (size_t)blockIdx.x * 2 * inter;
  for (int i = threadIdx.x; i < inter; i += blockDim.x) {
    const float gate = __bfloat162float(in[i]), up = __bfloat162float(in[inter + i]);
    y[(size_t)blockIdx.x * inter + i] = __float2bfloat16((gate > -10 ? gate * (0.5f + 0.5f * tanhf(0.5f * gate)) : gate * expf(gate) / (1 + expf(gate))) * up);
  }
}
