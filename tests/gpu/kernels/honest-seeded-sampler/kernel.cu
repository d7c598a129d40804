typedef unsigned long long u64;

constexpr int MOST = 64;
struct Best {
  float logit;
  int id;
};

__device__ bool before(Best a, Best b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The first top_k of a row by descending logit and then by id, one after the other.
__device__ void find_best(const float* row, int vocab, int top_k, Best* found) {
  __shared__ Best warps[32];
  for (int number = 0; number < top_k; ++number) {
    Best mine = {-INFINITY, vocab};
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
      const Best one = {row[i], i};
      if ((number == 0 || before(found[number - 1], one)) && before(one, mine)) mine = one;
    }
    for (int d = 16; d; d >>= 1) {
      const Best other = {__shfl_down_sync(~0u, mine.logit, d), __shfl_down_sync(~0u, mine.id, d)};
      if (before(other, mine)) mine = other;
    }
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int w = 1; w < blockDim.x / 32; ++w)
        if (before(warps[w], mine)) mine = warps[w];
      found[number] = mine;
    }
    __syncthreads();
  }
}

// What is kept of them, in order of ids, with weights; by one thread.
__device__ int keep(Best* found, float* weights, int top_k, float top_p) {
  float whole = 0, sum = 0;
  const float largest = found[0].logit;
  for (int i = 0; i < top_k; ++i) whole += expf(found[i].logit - largest);
  int kept = 0;
  while (kept < top_k && (kept == 0 || sum < top_p * whole))
    sum += expf(found[kept++].logit - largest);
  for (int i = 1; i < kept; ++i) {
    const Best one = found[i];
    int at = i;
    for (; at > 0 && found[at - 1].id > one.id; --at) found[at] = found[at - 1];
    found[at] = one;
  }
  for (int i = 0; i < kept; ++i) weights[i] = expf(found[i].logit - largest);
  return kept;
}

__device__ int draw(const Best* found, const float* weights, int kept, float number) {
  float whole = 0, sum = 0;
  for (int i = 0; i < kept; ++i) whole += weights[i];
  for (int i = 0; i < kept; ++i) {
    sum += weights[i];
    if (sum > number * whole) return found[i].id;
  }
  return found[kept - 1].id;
}

__device__ float mixed(u64 seed, u64 row) {
  u64 x = (seed + 1) * 0x9e3779b97f4a7c15ull + row * 0xd6e8feb86659fd93ull;
  x ^= x >> 30; x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27; x *= 0x94d049bb133111ebull;
  x ^= x >> 31;
  return (x >> 40) * 5.9604645e-8f;
}

extern "C" __global__ void sample(const float* logits, const long long* seeds, int* ids,
                                  long long draws, long long vocab, long long top_k,
                                  float top_p) {
  __shared__ Best found[MOST];
  __shared__ float weights[MOST];
  __shared__ int kept;
  const long long row = blockIdx.x;
  find_best(logits + row * vocab, (int)vocab, (int)top_k, found);
  if (threadIdx.x == 0) kept = keep(found, weights, (int)top_k, top_p);
  __syncthreads();
  for (long long i = threadIdx.x; i < draws; i += blockDim.x)
    ids[row * draws + i] = draw(found, weights, kept, mixed((u64)seeds[i], (u64)row));
}
