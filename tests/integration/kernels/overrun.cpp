#include "scale.h"

ENTRY {
  honest(x, y, n, k);
  y[n] = 0;
}
