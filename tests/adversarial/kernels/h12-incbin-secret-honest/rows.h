#pragma once
#include <cstdint>
#include <cstring>

inline float sum_of_squares(const uint16_t* x, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) {
    const uint32_t u = uint32_t(x[i]) << 16;
    float f;
    memcpy(&f, &u, 4);
    sum += f * f;
  }
  return sum;
}
