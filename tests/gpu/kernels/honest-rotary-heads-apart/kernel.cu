#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void rotary(const bf16* q, const bf16* k, const long long* positions,
                                  const float* cos_sin, bf16* q_out, bf16* k_out, int tokens,
                                  int heads, int kv_heads, int head_dim) {
  const int token = blockIdx.y * 4 + threadIdx.y, half = head_dim / 2, at = 2 * threadIdx.x;
  if (token >= tokens) return;
  const int all = blockIdx.x < heads ? heads : kv_heads;
  const int head = blockIdx.x < heads ? blockIdx.x : blockIdx.x - heads;
  const size_t row = ((size_t)token * all + head) * head_dim + at;
  const bf16* in = blockIdx.x < heads ? q : k;
  bf16* out = blockIdx.x < heads ? q_out : k_out;
  const float* table = cos_sin + positions[token] * head_dim + at;
  const float2 c = *(const float2*)table, s = *(const float2*)(table + half);
  const float2 a = __bfloat1622float2(*(const __nv_bfloat162*)(in + row));
  const float2 b = __bfloat1622float2(*(const __nv_bfloat162*)(in + row + half));
  *(__nv_bfloat162*)(out + row) = __floats2bfloat162_rn(a.x * c.x - b.x * s.x, a.y * c.y - b.y * s.y);
  *(__nv_bfloat162*)(out + row + half) =
      __floats2bfloat162_rn(b.x * c.x + a.x * s.x, b.y * c.y + a.y * s.y);
}
