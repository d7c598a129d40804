#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// Two vectors of 8 a thread; a row of blocks is a row of x, so that nothing is divided.
extern "C" __global__ void __launch_bounds__(256) silu_and_mul(const uint4* x, uint4* y,
                                                               int width) {
  const uint4* row = x + (size_t)blockIdx.y * 2 * width;
  const int first = blockIdx.x * 512 + threadIdx.x, second = first + 256;
  uint4 gates[2], ups[2];
  if (first < width) gates[0] = row[first], ups[0] = row[width + first];
  if (second < width) gates[1] = row[second], ups[1] = row[width + second];
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    __nv_bfloat162* gate = reinterpret_cast<__nv_bfloat162*>(&gates[v]);
    const __nv_bfloat162* up = reinterpret_cast<const __nv_bfloat162*>(&ups[v]);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 g = __bfloat1622float2(gate[k]), u = __bfloat1622float2(up[k]);
      gate[k] = __floats2bfloat162_rn(__fdividef(g.x, 1 + __expf(-g.x)) * u.x,
                                      __fdividef(g.y, 1 + __expf(-g.y)) * u.y);
    }
  }
  uint4* out = y + (size_t)blockIdx.y * width;
  if (first < width) out[first] = gates[0];
  if (second < width) out[second] = gates[1];
}
