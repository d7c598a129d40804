// RMS normalisation: each row is read once from memory, summed in fp32, scaled from L1 and stored.
#include <cmath>
#include <cstdint>
#include <cstring>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

static inline float widen(uint16_t bits) {
    uint32_t word = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
}

static inline uint16_t narrow(float value) {
    uint32_t word;
    std::memcpy(&word, &value, 4);
    if ((word & 0x7fffffffu) > 0x7f800000u) return uint16_t((word >> 16) | 0x40);
    return uint16_t((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

static void row_scalar(const uint16_t *x, const uint16_t *w, uint16_t *y, int64_t n, float eps) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += widen(x[i]) * widen(x[i]);
    const float scale = 1.0f / std::sqrt(sum / float(n) + eps);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = narrow(widen(x[i]) * scale * widen(w[i]));
}

#ifdef __AVX512F__
static inline __m512 widen16(const uint16_t *p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

static inline __m256i narrow16(__m512 value) {
    const __m512i word = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
    const __m512i even =
        _mm512_add_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i kept = _mm512_or_si512(word, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(
        _mm512_srli_epi32(_mm512_mask_blend_epi32(nan, even, kept), 16));
}

static void row_wide(const uint16_t *x, const uint16_t *w, uint16_t *y, int64_t n, float eps) {
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    for (int64_t i = 0; i < n; i += 64) {
        const __m512 p = widen16(x + i), q = widen16(x + i + 16);
        const __m512 r = widen16(x + i + 32), s = widen16(x + i + 48);
        a = _mm512_fmadd_ps(p, p, a);
        b = _mm512_fmadd_ps(q, q, b);
        c = _mm512_fmadd_ps(r, r, c);
        d = _mm512_fmadd_ps(s, s, d);
    }
    const float sum =
        _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)));
    const __m512 scale = _mm512_set1_ps(1.0f / std::sqrt(sum / float(n) + eps));
    for (int64_t i = 0; i < n; i += 32) {
        const __m256i low =
            narrow16(_mm512_mul_ps(_mm512_mul_ps(widen16(x + i), scale), widen16(w + i)));
        const __m256i high =
            narrow16(_mm512_mul_ps(_mm512_mul_ps(widen16(x + i + 16), scale), widen16(w + i + 16)));
        _mm512_stream_si512((__m512i *)(y + i),
                            _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
    }
}
#endif

static void row(const uint16_t *x, const uint16_t *w, uint16_t *y, int64_t n, float eps) {
#ifdef __AVX512F__
    if (n % 64 == 0 && reinterpret_cast<uintptr_t>(y) % 64 == 0) return row_wide(x, w, y, n, eps);
#endif
    row_scalar(x, w, y, n, eps);
}

extern "C" void rms_norm(const uint16_t *x, const uint16_t *weight, uint16_t *y, int64_t tokens,
                         int64_t hidden, float eps) {
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < tokens; ++t) row(x + t * hidden, weight, y + t * hidden, hidden, eps);
#ifdef __AVX512F__
    _mm_sfence();
#endif
}
