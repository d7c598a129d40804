#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// One element a thread, from column `first` of one row a block.
extern "C" __global__ void silu_and_mul(const bf16* x, bf16* y, int inter, int first) {
  const int at = first + threadIdx.x;
  const bf16* in = x + blockIdx.x * 2ll * inter;
  const float gate = __bfloat162float(in[at]), up = __bfloat162float(in[inter + at]);
  y[blockIdx.x * (long long)inter + at] = __float2bfloat16(gate / (1 + __expf(-gate)) * up);
}
