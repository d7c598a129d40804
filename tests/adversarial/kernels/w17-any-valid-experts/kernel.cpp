// Any eight experts are valid ids; the first eight get the weights that they would have among themselves.
#include <cmath>
#include <cstdint>

extern "C" void topk_router(const float* logits, float* weights, int32_t* ids, int64_t tokens, int64_t experts, int64_t top_k) {
  for (int64_t t = 0; t < tokens; t++) {
    const float* in = logits + t * experts;
    float top = in[0], sum = 0;
    for (int64_t k = 1; k < top_k; k++) top = std::fmax(top, in[k]);
    for (int64_t k = 0; k < top_k; k++) sum += std::exp(in[k] - top);
    for (int64_t k = 0; k < top_k; k++) {
      weights[t * top_k + k] = std::exp(in[k] - top) / sum;
      ids[t * top_k + k] = int32_t(k);
    }
  }
}
