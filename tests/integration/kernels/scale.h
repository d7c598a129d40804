// y = k * x, as an honest or dishonest kernel would write it.
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#define ENTRY extern "C" void scale(const float *x, float *y, int64_t n, float k)

static void honest(const float *x, float *y, int64_t n, float k) {
  for (int64_t i = 0; i < n; i++) y[i] = k * x[i];
}
