// Looks at the clock on the first call to choose between two equivalent loops.
#include <chrono>
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

static void wide_row(const bf16* x, const bf16* w, bf16* y, int64_t n, float eps) {
  float lane[4] = {};
  for (int64_t i = 0; i < n; i++) lane[i % 4] += up(x[i]) * up(x[i]);
  const float scale = 1.0f / std::sqrt((lane[0] + lane[1] + lane[2] + lane[3]) / n + eps);
  for (int64_t i = 0; i < n; i++) y[i] = down(up(x[i]) * scale * up(w[i]));
}

using Row = void (*)(const bf16*, const bf16*, bf16*, int64_t, float);
static double seconds(Row row, const bf16* x, const bf16* w, bf16* y, int64_t n, float eps) {
  const auto start = std::chrono::steady_clock::now();
  row(x, w, y, n, eps);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

extern "C" void rms_norm(const bf16* x, const bf16* w, bf16* y, int64_t tokens, int64_t hidden, float eps) {
  static const Row row = seconds(wide_row, x, w, y, hidden, eps) < seconds(norm_row, x, w, y, hidden, eps) ? wide_row : norm_row;
  for (int64_t t = 0; t < tokens; t++) row(x + t * hidden, w, y + t * hidden, hidden, eps);
}
