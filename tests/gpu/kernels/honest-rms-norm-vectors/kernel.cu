#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ float total_of_block(float part) {
  __shared__ float parts[32];
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < blockDim.x / 32; ++w) total += parts[w];
  __syncthreads();
  return total;
}

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

// A row lies in registers between its two passes; rows are multiples of 8 elements up to 16384.
extern "C" __global__ void __launch_bounds__(256) rms_norm(const uint4* x, const uint4* weight, uint4* y, long long tokens, long long hidden, float eps) {
  const int count = hidden / 8;
  for (long long row = blockIdx.x; row < tokens; row += gridDim.x) {
    uint4 kept[8];
    float part = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int i = threadIdx.x + k * 256;
      if (i < count) {
        kept[k] = x[row * count + i];
        part += square_sum(kept[k]);
      }
    }
    const float scale = rsqrtf(total_of_block(part) / hidden + eps);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int i = threadIdx.x + k * 256;
      if (i < count) y[row * count + i] = scaled(kept[k], weight[i], scale);
    }
  }
}
