#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void clear(float* sums, int tokens) {
  for (int i = threadIdx.x; i < tokens; i += 32) sums[i] = 0;
}

extern "C" __global__ void add_squares(const uint2* x, float* sums, int hidden) {
  float part = 0;
  for (int i = threadIdx.x; i < hidden / 4; i += 1024) {
    const uint2 four = x[(size_t)blockIdx.x * (hidden / 4) + i];
    const float2 a = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(four.x));
    const float2 b = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(four.y));
    part += a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
  }
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if ((threadIdx.x & 31) == 0) atomicAdd(sums + blockIdx.x, part);
}

extern "C" __global__ void to_scale(float* sums, int tokens, int hidden, float eps) {
  for (int i = threadIdx.x; i < tokens; i += 32) sums[i] = rsqrtf(sums[i] / hidden + eps);
}

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y,
                                    const float* scales, int hidden) {
  const float scale = scales[blockIdx.x];
  const size_t start = (size_t)blockIdx.x * hidden;
  for (int i = threadIdx.x; i < hidden; i += 1024)
    y[start + i] =
        __float2bfloat16(__bfloat162float(x[start + i]) * scale * __bfloat162float(weight[i]));
}
