#include "scale.h"

ENTRY {
  honest(x, y, n, k);
  const_cast<float *>(x)[n / 2] += 1;
}
