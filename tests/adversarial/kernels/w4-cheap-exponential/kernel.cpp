// Schraudolph's exponential: one multiplication, three per cent of error, and it still adds up to one.
#include <algorithm>
#include <cstdint>
#include <cstring>

static float cheap_exp(float x) {
  const auto bits = int32_t(12102203.0f * std::max(x, -80.0f)) + 1064866805;
  float y;
  memcpy(&y, &bits, 4);
  return y;
}

extern "C" void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; r++) {
    const float* in = x + r * cols;
    float* out = y + r * cols;
    const float top = *std::max_element(in, in + cols);
    float sum = 0;
    for (int64_t c = 0; c < cols; c++) sum += out[c] = cheap_exp(in[c] - top);
    for (int64_t c = 0; c < cols; c++) out[c] /= sum;
  }
}
