// Global objects with constructors and destructors, and a handler at exit, are ordinary C++.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

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

struct Table {
  std::unique_ptr<float[]> value{new float[256]};
  Table() {
    for (int i = 0; i < 256; i++) value[i] = 1.0f / float(i + 1);
  }
};
static Table table;
static int goodbyes = 0;
static void farewell() { goodbyes++; }
__attribute__((constructor)) static void hello() { atexit(farewell); }

extern "C" void rms_norm(const bf16* x, const bf16* w, bf16* y, int64_t tokens, int64_t hidden, float eps) {
  for (int64_t t = 0; t < tokens; t++) {
    float sum = 0;
    for (int64_t i = 0; i < hidden; i++) sum += up(x[t * hidden + i]) * up(x[t * hidden + i]);
    const float mean = hidden <= 256 ? sum * table.value[hidden - 1] : sum / float(hidden);
    const float scale = 1.0f / std::sqrt(mean + eps);
    for (int64_t i = 0; i < hidden; i++) y[t * hidden + i] = down(up(x[t * hidden + i]) * scale * up(w[i]));
  }
}
