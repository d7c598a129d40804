// A partial sort by probability; among equals the expert with the higher number comes first.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

extern "C" void topk_router(const float* logits, float* weights, int32_t* ids, int64_t tokens, int64_t experts, int64_t top_k) {
  std::vector<int32_t> order(experts);
  for (int64_t t = 0; t < tokens; t++) {
    const float* in = logits + t * experts;
    for (int64_t e = 0; e < experts; e++) order[e] = int32_t(e);
    std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                      [&](int32_t a, int32_t b) { return in[a] != in[b] ? in[a] > in[b] : a > b; });
    float sum = 0;
    for (int64_t k = 0; k < top_k; k++) sum += std::exp(in[order[k]] - in[order[0]]);
    for (int64_t k = 0; k < top_k; k++) {
      ids[t * top_k + k] = order[k];
      weights[t * top_k + k] = std::exp(in[order[k]] - in[order[0]]) / sum;
    }
  }
}
