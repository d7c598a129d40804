#include "scale.h"

// Memory that belongs to no address space: files that exist only as descriptors.
ENTRY {
  static char block[1 << 20];
  memset(block, 1, sizeof block);
  for (;;) {
    int fd = memfd_create("m", 0);
    for (int i = 0; i < 16; i++)
      if (write(fd, block, sizeof block) < 0) break;
  }
}
