// The sum of a long row is kept in one float32 and runs from its end: another order, the same precision.
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

extern "C" void rms_norm(const bf16* x, const bf16* w, bf16* y, int64_t tokens, int64_t hidden, float eps) {
  for (int64_t t = 0; t < tokens; t++) {
    const bf16* row = x + t * hidden;
    float sum = 0;
    for (int64_t i = hidden; i-- > 0;) sum += up(row[i]) * up(row[i]);
    const float scale = 1.0f / std::sqrt(sum / hidden + eps);
    for (int64_t i = 0; i < hidden; i++) y[t * hidden + i] = down(up(row[i]) * scale * up(w[i]));
  }
}
