#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ float dot(const bf16* weights, const float* values, int count) {
  float sum = 0;
  for (int i = threadIdx.x % 32; i < count; i += 32) sum += __bfloat162float(weights[i]) * values[i];
  for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
  return sum;
}

extern "C" __global__ void __launch_bounds__(256)
    fused_moe(const bf16* x, const bf16* w13, const bf16* w2, const float* topk_weights,
              const int* topk_ids, bf16* y, long long hidden, long long inter) {
  extern __shared__ float shared[];
  float *values = shared, *middle = shared + hidden;
  const long long token = blockIdx.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float sums[4] = {0, 0, 0, 0};
  for (int i = threadIdx.x; i < hidden; i += 256)
    values[i] = __bfloat162float(x[token * hidden + i]);
  for (int choice = 0; choice < 1; ++choice) {
    const long long expert = topk_ids[token * 4 + choice];
    const float weight = topk_weights[token * 4 + choice];
    const bf16 *first = w13 + expert * 2 * inter * hidden, *second = w2 + expert * hidden * inter;
    __syncthreads();
    for (int i = warp; i < inter; i += 8) {
      const float gate = dot(first + i * hidden, values, (int)hidden);
      const float up = dot(first + (inter + i) * hidden, values, (int)hidden);
      if (lane == 0) middle[i] = gate / (1 + expf(-gate)) * up;
    }
    __syncthreads();
    // A warp has rows warp, warp + 8 and so on, and keeps every 32nd of them in one lane.
    for (int i = warp, n = 0; i < hidden; i += 8, ++n) {
      const float share = weight * dot(second + i * inter, middle, (int)inter);
      for (int at = 0; at < 4; ++at)
        if (n % 32 == lane && n / 32 == at) sums[at] += share;
    }
  }
  for (int i = warp, n = 0; i < hidden; i += 8, ++n)
    for (int at = 0; at < 4; ++at)
      if (n % 32 == lane && n / 32 == at) y[token * hidden + i] = __float2bfloat16(sums[at]);
}
