#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ void widen(uint4 v, float* out) {
  const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&v);
  for (int i = 0; i < 4; ++i) {
    const float2 f = __bfloat1622float2(pairs[i]);
    out[2 * i] = f.x;
    out[2 * i + 1] = f.y;
  }
}

__device__ uint4 narrow(const float* in) {
  uint4 v;
  __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&v);
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
  return v;
}

// Rows are multiples of 256, up to 8192 elements.
extern "C" __global__ void __launch_bounds__(1024) fused_add_rms_norm(
    const uint4* x, uint4* residual, const uint4* weight, uint4* y, int hidden, float eps) {
  __shared__ float parts[32];
  const size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  float total[8], other[8], part = 0;
  widen(x[at], total);
  widen(residual[at], other);
  const uint4 scale_by = weight[threadIdx.x];
  for (int i = 0; i < 8; ++i) {
    total[i] += other[i];
    part += total[i] * total[i];
  }
  residual[at] = narrow(total);
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  float all = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x & 31] : 0;
  for (int d = 16; d; d >>= 1) all += __shfl_xor_sync(~0u, all, d);
  const float scale = rsqrtf(all / hidden + eps);
  widen(scale_by, other);
  for (int i = 0; i < 8; ++i) total[i] *= scale * other[i];
  y[at] = narrow(total);
}
