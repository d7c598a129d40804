#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void silu_and_mul(const bf16* x, bf16* y, long long count, long long inter) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += gridDim.x * (long long)blockDim.x) {
    const long long row = i / inter, column = i % inter;
    const float gate = __bfloat162float(x[2 * row * inter + column]);
    const float up = __bfloat162float(x[(2 * row + 1) * inter + column]);
    y[i] = __float2bfloat16(gate / (1 + expf(-gate)) * up);
  }
}
