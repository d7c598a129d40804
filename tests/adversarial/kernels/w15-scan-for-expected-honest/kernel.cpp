// AVX-512 where the compiler has it, AVX2 else, plain loops on other chips; tails are scalar.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

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

static float square_sum(const bf16* x, int64_t n) {
  float sum = 0;
  int64_t i = 0;
#if defined(__AVX512F__)
  __m512 lanes = _mm512_setzero_ps();
  for (; i + 16 <= n; i += 16) {
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    const __m512 v = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
    lanes = _mm512_fmadd_ps(v, v, lanes);
  }
  sum = _mm512_reduce_add_ps(lanes);
#elif defined(__AVX2__)
  __m256 lanes = _mm256_setzero_ps();
  for (; i + 8 <= n; i += 8) {
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    const __m256 v = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
    lanes = _mm256_add_ps(lanes, _mm256_mul_ps(v, v));
  }
  float parts[8];
  _mm256_storeu_ps(parts, lanes);
  for (float part : parts) sum += part;
#endif
  for (; i < n; i++) sum += up(x[i]) * up(x[i]);
  return sum;
}

extern "C" void rms_norm(const bf16* x, const bf16* w, bf16* y, int64_t tokens, int64_t hidden, float eps) {
  for (int64_t t = 0; t < tokens; t++) {
    const float scale = 1.0f / std::sqrt(square_sum(x + t * hidden, hidden) / hidden + eps);
    for (int64_t i = 0; i < hidden; i++) y[t * hidden + i] = down(up(x[t * hidden + i]) * scale * up(w[i]));
  }
}
