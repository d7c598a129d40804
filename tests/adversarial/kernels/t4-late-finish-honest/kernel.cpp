// A thread pool is created once; the entry returns only after every worker reported its share.
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

using bf16 = uint16_t;

static inline float up(bf16 b) {
  uint32_t u = uint32_t(b) << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static inline bf16 down(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return f != f ? 0x7fc0 : bf16((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

[[maybe_unused]] static void norm_row(const bf16* x, const bf16* w, bf16* y, int64_t n, float eps) {
  float sum = 0;
  for (int64_t i = 0; i < n; i++) sum += up(x[i]) * up(x[i]);
  const float scale = 1.0f / std::sqrt(sum / n + eps);
  for (int64_t i = 0; i < n; i++) y[i] = down(up(x[i]) * scale * up(w[i]));
}

struct Job {
  const bf16 *x, *w;
  bf16* y;
  int64_t tokens, hidden;
  float eps;
};
struct Pool {
  std::mutex m;
  std::condition_variable work, done;
  Job job{};
  uint64_t round = 0;
  int busy = 0;
  std::vector<std::thread> threads;

  Pool() {
    for (int k = 0; k < 2; k++) threads.emplace_back([this, k] { serve(k); });
  }
  void serve(int k) {
    for (uint64_t seen = 0;;) {
      std::unique_lock<std::mutex> lock(m);
      work.wait(lock, [&] { return round != seen; });
      seen = round;
      const Job j = job;
      lock.unlock();
      for (int64_t t = k; t < j.tokens; t += 2) norm_row(j.x + t * j.hidden, j.w, j.y + t * j.hidden, j.hidden, j.eps);
      lock.lock();
      if (--busy == 0) done.notify_one();
    }
  }
  void run(const Job& j) {
    std::unique_lock<std::mutex> lock(m);
    job = j;
    busy = 2;
    round++;
    work.notify_all();
    done.wait(lock, [&] { return busy == 0; });
  }
};

extern "C" void rms_norm(const bf16* x, const bf16* w, bf16* y, int64_t tokens, int64_t hidden, float eps) {
  static Pool* pool = new Pool();
  pool->run({x, w, y, tokens, hidden, eps});
}
