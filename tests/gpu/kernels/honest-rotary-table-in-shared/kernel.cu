#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

__device__ void turn(const bf16* in, bf16* out, const float* table, int half, int pair) {
  const float first = __bfloat162float(in[pair]), second = __bfloat162float(in[pair + half]);
  out[pair] = __float2bfloat16(first * table[pair] - second * table[half + pair]);
  out[pair + half] = __float2bfloat16(second * table[pair] + first * table[half + pair]);
}

extern "C" __global__ void rotary(const bf16* q, const bf16* k, const long long* positions,
                                  const float* cos_sin, bf16* q_out, bf16* k_out, int tokens,
                                  int heads, int kv_heads, int head_dim) {
  extern __shared__ float table[];
  const int half = head_dim / 2;
  for (int token = blockIdx.x; token < tokens; token += gridDim.x) {
    __syncthreads();
    for (int i = threadIdx.x; i < head_dim; i += blockDim.x)
      table[i] = cos_sin[positions[token] * head_dim + i];
    __syncthreads();
    for (int i = threadIdx.x; i < heads * half; i += blockDim.x) {
      const size_t row = ((size_t)token * heads + i / half) * head_dim;
      turn(q + row, q_out + row, table, half, i % half);
    }
    for (int i = threadIdx.x; i < kv_heads * half; i += blockDim.x) {
      const size_t row = ((size_t)token * kv_heads + i / half) * head_dim;
      turn(k + row, k_out + row, table, half, i % half);
    }
  }
}
