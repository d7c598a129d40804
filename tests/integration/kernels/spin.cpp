#include "scale.h"

ENTRY {
  for (int i = 0; i < 3; i++) new std::thread([] { for (volatile long j = 0;; j = j + 1) {} });
  for (volatile long j = 0;; j = j + 1) {}
}
