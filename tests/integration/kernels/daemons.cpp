#include "scale.h"

// Leaves detached, session-leading grandchildren behind and answers honestly.
ENTRY {
  if (fork() == 0) {
    setsid();
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (fork() == 0) for (volatile long j = 0;; j = j + 1) {}
    _exit(0);
  }
  wait(nullptr);
  honest(x, y, n, k);
}
