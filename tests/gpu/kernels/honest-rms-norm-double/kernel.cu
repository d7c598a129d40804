#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, int hidden,
                                    float eps) {
  __shared__ double parts[256];
  const bf16* in = x + (size_t)blockIdx.x * hidden;
  double part = 0;
  for (int i = threadIdx.x; i < hidden; i += 256) {
    const double v = __bfloat162float(in[i]);
    part += v * v;
  }
  parts[threadIdx.x] = part;
  __syncthreads();
  for (int d = 128; d; d >>= 1) {
    if (threadIdx.x < d) parts[threadIdx.x] += parts[threadIdx.x + d];
    __syncthreads();
  }
  const double scale = 1 / sqrt(parts[0] / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += 256)
    y[(size_t)blockIdx.x * hidden + i] = __float2bfloat16(
        (float)(__bfloat162float(in[i]) * scale * __bfloat162float(weight[i])));
}
