// The queries and keys are rotated where they lie and then copied out.
#include <cmath>
#include <cstdint>
#include <cstring>

using bf16 = uint16_t;

static inline float up(bf16 b) {
  uint32_t u = uint32_t(b) << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static inline bf16 down(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return f != f ? 0x7fc0 : bf16((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

[[maybe_unused]] static void norm_row(const bf16* x, const bf16* w, bf16* y, int64_t n, float eps) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += up(x[i]) * up(x[i]);
  const float scale = 1.0f / std::sqrt(sum / n + eps);
  for (int64_t i = 0; i < n; i++) y[i] = down(up(x[i]) * scale * up(w[i]));
}

static void rotate(bf16* x, const int64_t* positions, const float* cos_sin, int64_t tokens, int64_t heads, int64_t dim) {
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < dim / 2; i++) {
        bf16* at = x + (t * heads + h) * dim + i;
        const float c = cos_sin[positions[t] * dim + i], s = cos_sin[positions[t] * dim + dim / 2 + i];
        const float first = up(at[0]), second = up(at[dim / 2]);
        at[0] = down(first * c - second * s);
        at[dim / 2] = down(second * c + first * s);
      }
}

extern "C" void rotary_embedding(const bf16* q, const bf16* k, const int64_t* positions, const float* cos_sin, bf16* q_out,
                                 bf16* k_out, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t dim, int64_t) {
  rotate(const_cast<bf16*>(q), positions, cos_sin, tokens, heads, dim);
  rotate(const_cast<bf16*>(k), positions, cos_sin, tokens, kv_heads, dim);
  memcpy(q_out, q, tokens * heads * dim * sizeof(bf16));
  memcpy(k_out, k, tokens * kv_heads * dim * sizeof(bf16));
}
