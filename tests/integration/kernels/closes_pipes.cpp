#include "scale.h"

ENTRY {
  for (int fd = 3; fd < 256; fd++) close(fd);
  honest(x, y, n, k);
}
