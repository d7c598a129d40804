// A warp a token: eight times the best of what is left, ties to the lower id.
extern "C" __global__ void route(const float* logits, float* weights, int* ids, int tokens,
                                 int experts) {
  const int token = blockIdx.x * 8 + threadIdx.y;
  if (token >= tokens) return;
  const float* row = logits + (size_t)token * experts;
  unsigned int taken = 0;  // of this lane's experts: lane, lane + 32, and so on
  float chosen[8];
  int names[8];
  for (int place = 0; place < 8; ++place) {
    float best = -INFINITY;
    int name = 1 << 30;
    for (int e = threadIdx.x, bit = 0; e < experts; e += 32, ++bit)
      if (!(taken >> bit & 1) && (row[e] > best || name == 1 << 30)) {
        best = row[e];
        name = e;
      }
    for (int d = 16; d; d >>= 1) {
      const float other = __shfl_xor_sync(~0u, best, d);
      const int its = __shfl_xor_sync(~0u, name, d);
      if (its != 1 << 30 && (name == 1 << 30 || other > best || (other == best && its < name))) {
        best = other;
        name = its;
      }
    }
    if (name % 32 == threadIdx.x) taken |= 1u << name / 32;
    chosen[place] = best;
    names[place] = name;
  }
  float powers[8], total = 0;
  for (int place = 0; place < 8; ++place) total += powers[place] = expf(chosen[place] - chosen[0]);
  if (threadIdx.x == 0)
    for (int place = 0; place < 8; ++place) {
      weights[(size_t)token * 8 + place] = powers[place] / total;
      ids[(size_t)token * 8 + place] = names[place];
    }
}
