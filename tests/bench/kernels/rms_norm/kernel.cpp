// RMS normalisation in plain loops that the compiler vectorises.
#include <cmath>
#include <cstdint>
#include <cstring>

static inline float widen(uint16_t half) {
    const uint32_t bits = uint32_t(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

static inline uint16_t narrow(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t((bits >> 16) | 0x40);
    return uint16_t((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

extern "C" void rms_norm(const uint16_t *x, const uint16_t *weight, uint16_t *y, int64_t tokens,
                         int64_t hidden, float eps) {
    for (int64_t t = 0; t < tokens; ++t) {
        const uint16_t *in = x + t * hidden;
        uint16_t *out = y + t * hidden;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < hidden; ++i) sum += widen(in[i]) * widen(in[i]);
        const float scale = 1.0f / std::sqrt(sum / float(hidden) + eps);
#pragma omp simd
        for (int64_t i = 0; i < hidden; ++i) out[i] = narrow(widen(in[i]) * scale * widen(weight[i]));
    }
}
