#include "scale.h"

ENTRY {
  static char block[1 << 16];
  int fd = open("/tmp/big", O_CREAT | O_WRONLY, 0600);
  while (write(fd, block, sizeof block) > 0) {}
  honest(x, y, n, k);
}
