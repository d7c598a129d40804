#include "scale.h"

// Honest: scales its input beforehand, as a kernel may repack weights.
static float *scaled = nullptr;

extern "C" void *prepare(const float *x, int64_t n, float k) {
  scaled = static_cast<float *>(realloc(scaled, n * sizeof *scaled));
  honest(x, scaled, n, k);
  return scaled;
}

extern "C" void scale(const float *, float *y, int64_t n, float, void *prepared) {
  memcpy(y, prepared, n * sizeof *y);
}
