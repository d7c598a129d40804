#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern __shared__ float row[];

// Global accesses are whole lines; in shared memory the threads of a warp are 32 words apart.
extern "C" __global__ void __launch_bounds__(128) rms_norm(const __nv_bfloat162* x,
                                                           const bf16* weight, __nv_bfloat162* y,
                                                           int hidden, float eps) {
  __shared__ float parts[4];
  const size_t start = (size_t)blockIdx.x * (hidden / 2);
  for (int i = threadIdx.x; i < hidden / 2; i += 128) {
    const float2 pair = __bfloat1622float2(x[start + i]);
    row[2 * i] = pair.x;
    row[2 * i + 1] = pair.y;
  }
  __syncthreads();
  const int mine = hidden / 128, first = threadIdx.x * mine;
  float part = 0;
  for (int i = 0; i < mine; ++i) part += row[first + i] * row[first + i];
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  const float scale = rsqrtf((parts[0] + parts[1] + parts[2] + parts[3]) / hidden + eps);
  for (int i = 0; i < mine; ++i) row[first + i] *= scale;
  __syncthreads();
  for (int i = threadIdx.x; i < hidden / 2; i += 128)
    y[start + i] = __floats2bfloat162_rn(row[2 * i] * __bfloat162float(weight[2 * i]),
                                         row[2 * i + 1] * __bfloat162float(weight[2 * i + 1]));
}
