// Pointer arithmetic finds the first aligned element; head, body and tail are all computed.
#include <algorithm>
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
    bf16* out = y + t * hidden;
    const auto misaligned = reinterpret_cast<uintptr_t>(row) % 32;
    const int64_t head = std::min<int64_t>(hidden, misaligned ? (32 - misaligned) / 2 : 0);
    float lane[16] = {}, sum = 0;
    for (int64_t i = 0; i < head; i++) sum += up(row[i]) * up(row[i]);
    int64_t i = head;
    for (; i + 16 <= hidden; i += 16)
      for (int k = 0; k < 16; k++) lane[k] += up(row[i + k]) * up(row[i + k]);
    for (; i < hidden; i++) sum += up(row[i]) * up(row[i]);
    for (float part : lane) sum += part;
    const float scale = 1.0f / std::sqrt(sum / hidden + eps);
    for (int64_t j = 0; j < hidden; j++) out[j] = down(up(row[j]) * scale * up(w[j]));
  }
}
