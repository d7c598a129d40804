// Matrix product in blocks of 128 along k: every block packs, multiplies and adds alike, so that
// twice the k is twice the work.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

using Lane = float __attribute__((vector_size(64)));  // 16 floats; any compiler target can do it
constexpr int64_t WIDE = 16, COLUMNS = 2 * WIDE, ROWS = 8, DEEP = 128;

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

static int64_t padded(int64_t extent, int64_t step) { return (extent + step - 1) / step * step; }

static inline Lane load(const float *from) {
    Lane lane;
    std::memcpy(&lane, from, sizeof lane);
    return lane;
}

// total[ROWS, COLUMNS] += left[DEEP, ROWS] x right[DEEP, COLUMNS]
static void multiply(const float *left, const float *right, float *total, int64_t stride) {
    Lane sum[ROWS][2] = {};
    for (int64_t l = 0; l < DEEP; ++l) {
        const Lane low = load(right + l * COLUMNS), high = load(right + l * COLUMNS + WIDE);
#pragma GCC unroll 8
        for (int64_t i = 0; i < ROWS; ++i) {
            sum[i][0] += left[l * ROWS + i] * low;
            sum[i][1] += left[l * ROWS + i] * high;
        }
    }
    for (int64_t i = 0; i < ROWS; ++i)
        for (int64_t half = 0; half < 2; ++half) {
            float *place = total + i * stride + half * WIDE;
            const Lane lane = load(place) + sum[i][half];
            std::memcpy(place, &lane, sizeof lane);
        }
}

static void pack_left(const uint16_t *a, float *left, int64_t m, int64_t k, int64_t from, int64_t deep) {
    for (int64_t i = 0; i < m; ++i) {
        float *panel = left + i / ROWS * ROWS * DEEP + i % ROWS;
        for (int64_t l = 0; l < deep; ++l) panel[l * ROWS] = widen(a[i * k + from + l]);
    }
}

static void pack_right(const uint16_t *b, float *right, int64_t n, int64_t from, int64_t deep) {
    for (int64_t l = 0; l < deep; ++l)
        for (int64_t j = 0; j < n; ++j)
            right[j / COLUMNS * COLUMNS * DEEP + l * COLUMNS + j % COLUMNS] = widen(b[(from + l) * n + j]);
}

extern "C" void matmul(const uint16_t *a, const uint16_t *b, uint16_t *y, int64_t m, int64_t k,
                       int64_t n) {
    static std::vector<float> left, right, total;  // scratch, written anew in every call
    const int64_t tall = padded(m, ROWS), wide = padded(n, COLUMNS);
    left.assign(tall * DEEP, 0);
    right.assign(wide * DEEP, 0);
    total.assign(tall * wide, 0);
    for (int64_t from = 0; from < k; from += DEEP) {
        const int64_t deep = std::min(DEEP, k - from);
        if (deep < DEEP) {
            std::fill(left.begin(), left.end(), 0.0f);
            std::fill(right.begin(), right.end(), 0.0f);
        }
        pack_left(a, left.data(), m, k, from, deep);
        pack_right(b, right.data(), n, from, deep);
        for (int64_t i = 0; i < tall; i += ROWS)
            for (int64_t j = 0; j < wide; j += COLUMNS)
                multiply(&left[i * DEEP], &right[j * DEEP], &total[i * wide + j], wide);
    }
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) y[i * n + j] = narrow(total[i * wide + j]);
}
