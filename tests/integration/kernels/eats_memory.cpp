#include "scale.h"

ENTRY {
  for (;;) {
    char *block = static_cast<char *>(malloc(1 << 20));
    if (block) memset(block, 1, 1 << 20);
  }
}
