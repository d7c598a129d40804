#include "scale.h"

// Honest: its threads end before it returns.
ENTRY {
  std::thread other([=] { honest(x, y, n / 2, k); });
  honest(x + n / 2, y + n / 2, n - n / 2, k);
  other.join();
}
