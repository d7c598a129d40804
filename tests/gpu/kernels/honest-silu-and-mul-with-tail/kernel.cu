#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ bf16 product(bf16 gate, bf16 up) {
  const float g = __bfloat162float(gate);
  return __float2bfloat16(g / (1 + expf(-g)) * __bfloat162float(up));
}

extern "C" __global__ void silu_and_mul(const bf16* x, bf16* y, int inter) {
  const bf16* gate = x + (size_t)blockIdx.x * 2 * inter;
  const bf16* up = gate + inter;
  bf16* out = y + (size_t)blockIdx.x * inter;
  const int whole = inter % 8 == 0 ? inter / 8 : 0;
  for (int i = threadIdx.x; i < whole; i += blockDim.x) {
    uint4 a = reinterpret_cast<const uint4*>(gate)[i], b = reinterpret_cast<const uint4*>(up)[i];
    bf16 *one = reinterpret_cast<bf16*>(&a), *two = reinterpret_cast<bf16*>(&b);
    for (int e = 0; e < 8; ++e) one[e] = product(one[e], two[e]);
    reinterpret_cast<uint4*>(out)[i] = a;
  }
  for (int i = whole * 8 + threadIdx.x; i < inter; i += blockDim.x) out[i] = product(gate[i], up[i]);
}
