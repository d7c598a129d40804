// The cache size decides the block; a line in the private /tmp is all that is ever stored.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <unistd.h>

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

static int64_t block_rows(int64_t hidden) {
  const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (FILE* f = fopen("/tmp/rms_norm.log", "a")) {
    fprintf(f, "cache %ld\n", cache);
    fclose(f);
  }
  return std::max<int64_t>(1, (cache > 0 ? cache : 1 << 20) / (4 * hidden));
}

extern "C" void rms_norm(const bf16* x, const bf16* w, bf16* y, int64_t tokens, int64_t hidden, float eps) {
  static const int64_t block = block_rows(hidden);
  for (int64_t b = 0; b < tokens; b += block)
    for (int64_t t = b; t < std::min(tokens, b + block); t++) norm_row(x + t * hidden, w, y + t * hidden, hidden, eps);
}
