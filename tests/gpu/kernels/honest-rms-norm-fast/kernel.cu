#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ float square_sum(uint4 v) {
  const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&v);
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    float2 f = __bfloat1622float2(pairs[i]);
    sum += f.x * f.x + f.y * f.y;
  }
  return sum;
}

__device__ uint4 scaled(uint4 v, uint4 w, float scale) {
  __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&v);
  const __nv_bfloat162* weights = reinterpret_cast<const __nv_bfloat162*>(&w);
  for (int i = 0; i < 4; ++i) {
    float2 f = __bfloat1622float2(pairs[i]), g = __bfloat1622float2(weights[i]);
    pairs[i] = __floats2bfloat162_rn(f.x * scale * g.x, f.y * scale * g.y);
  }
  return v;
}

// One block a row and one vector of 8 a thread: rows are multiples of 256, up to 8192 elements. The
// weight is on its way while the block adds up.
extern "C" __global__ void __launch_bounds__(1024) rms_norm(const uint4* x, const uint4* weight,
                                                            uint4* y, int hidden, float eps) {
  __shared__ float parts[32];
  const size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  const uint4 mine = x[at], scale_by = weight[threadIdx.x];
  float part = square_sum(mine);
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  float total = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x & 31] : 0;
  for (int d = 16; d; d >>= 1) total += __shfl_xor_sync(~0u, total, d);
  y[at] = scaled(mine, scale_by, rsqrtf(total / hidden + eps));
}
