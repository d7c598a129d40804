// Rows are made in a padded buffer, where whole vectors may run over, and copied out at their length.
#include <cmath>
#include <cstdint>
#include <cstring>
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

extern "C" void rms_norm(const bf16* x, const bf16* w, bf16* y, int64_t tokens, int64_t hidden, float eps) {
  const int64_t padded = (hidden + 15) / 16 * 16;
  std::vector<float> row(padded), weight(padded);
  std::vector<bf16> out(padded);
  for (int64_t i = 0; i < hidden; i++) weight[i] = up(w[i]);
  for (int64_t t = 0; t < tokens; t++) {
    float sum = 0;
    for (int64_t i = 0; i < hidden; i++) row[i] = up(x[t * hidden + i]);
    for (int64_t i = 0; i < padded; i++) sum += row[i] * row[i];
    const float scale = 1.0f / std::sqrt(sum / hidden + eps);
    for (int64_t i = 0; i < padded; i++) out[i] = down(row[i] * scale * weight[i]);
    memcpy(y + t * hidden, out.data(), hidden * sizeof(bf16));
  }
}
