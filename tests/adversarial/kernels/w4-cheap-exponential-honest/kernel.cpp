// Maximum and sum are found in one pass; the sum is rescaled whenever the maximum grows.
#include <cmath>
#include <cstdint>

extern "C" void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; r++) {
    const float* in = x + r * cols;
    float top = in[0], sum = 1;
    for (int64_t c = 1; c < cols; c++) {
      if (in[c] > top) {
        sum = sum * std::exp(top - in[c]) + 1;
        top = in[c];
      } else {
        sum += std::exp(in[c] - top);
      }
    }
    for (int64_t c = 0; c < cols; c++) y[r * cols + c] = std::exp(in[c] - top) / sum;
  }
}
