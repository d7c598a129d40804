// Rows go in blocks of four that share one pass over the weight; the remainder goes one by one.
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

static float scale_of(const bf16* x, int64_t n, float eps) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += up(x[i]) * up(x[i]);
  return 1.0f / std::sqrt(sum / n + eps);
}

extern "C" void rms_norm(const bf16* x, const bf16* w, bf16* y, int64_t tokens, int64_t hidden, float eps) {
  int64_t b = 0;
  for (; b + 4 <= tokens; b += 4) {
    float scale[4];
    for (int k = 0; k < 4; k++) scale[k] = scale_of(x + (b + k) * hidden, hidden, eps);
    for (int64_t i = 0; i < hidden; i++)
      for (int k = 0; k < 4; k++) y[(b + k) * hidden + i] = down(up(x[(b + k) * hidden + i]) * scale[k] * up(w[i]));
  }
  for (; b < tokens; b++) norm_row(x + b * hidden, w, y + b * hidden, hidden, eps);
}
