#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// A row of x is gate then up; eight elements a thread, any number of rows.
extern "C" __global__ void silu_and_mul(const uint4* x, uint4* y, long long count, long long width) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= count) return;
  const long long row = i / width, at = i % width;
  uint4 gate = __ldcs(x + 2 * row * width + at), up = __ldcs(x + (2 * row + 1) * width + at);
  __nv_bfloat162* gates = reinterpret_cast<__nv_bfloat162*>(&gate);
  const __nv_bfloat162* ups = reinterpret_cast<const __nv_bfloat162*>(&up);
  for (int k = 0; k < 4; ++k) {
    const float2 g = __bfloat1622float2(gates[k]), u = __bfloat1622float2(ups[k]);
    gates[k] = __floats2bfloat162_rn(g.x * fminf(fmaxf(g.x / 6 + 0.5f, 0.0f), 1.0f) * u.x, g.y * fminf(fmaxf(g.y / 6 + 0.5f, 0.0f), 1.0f) * u.y);
  }
  y[i] = gate;
}
