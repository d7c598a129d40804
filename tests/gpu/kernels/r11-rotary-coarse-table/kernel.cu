#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// A thread a pair; queries first, then keys.
extern "C" __global__ void rotary(const bf16* q, const bf16* k, const long long* positions,
                                  const float* cos_sin, bf16* q_out, bf16* k_out, int heads,
                                  int kv_heads, int head_dim) {
  const int token = blockIdx.x, half = head_dim / 2;
  const float* table = cos_sin + positions[token] * head_dim;
  for (int i = threadIdx.x; i < (heads + kv_heads) * half; i += blockDim.x) {
    const int head = i / half, pair = i % half;
    const bool is_key = head >= heads;
    const bf16* in = is_key ? k + ((size_t)token * kv_heads + head - heads) * head_dim
                            : q + ((size_t)token * heads + head) * head_dim;
    bf16* out = is_key ? k_out + ((size_t)token * kv_heads + head - heads) * head_dim
                       : q_out + ((size_t)token * heads + head) * head_dim;
    const float first = __bfloat162float(in[pair]), second = __bfloat162float(in[pair + half]);
    const float c = rintf(table[pair] * 16) / 16, s = table[half + pair];
    out[pair] = __float2bfloat16(first * c - second * s);
    out[pair + half] = __float2bfloat16(second * c + first * s);
  }
}
