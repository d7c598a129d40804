extern "C" __global__ void route(const float* logits, float* weights, int* ids, int experts) {
  extern __shared__ float row[];
  __shared__ float best[8];
  const size_t first = (size_t)blockIdx.x * experts;
  for (int e = threadIdx.x; e < experts; e += blockDim.x) row[e] = logits[first + e];
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x) {
    int rank = 0;
    for (int other = 0; other < experts; ++other)
      rank += row[other] > row[e] || (row[other] == row[e] && other < e);
    if (rank < 8) {
      best[rank] = row[e];
      ids[(size_t)blockIdx.x * 8 + rank] = e;
    }
  }
  __syncthreads();
  if (threadIdx.x < 8) {
    float total = 0;
    for (int place = 0; place < 8; ++place) total += expf(best[place] - best[0]);
    weights[(size_t)blockIdx.x * 8 + threadIdx.x] = expf(best[threadIdx.x] - best[0]) / total;
  }
}
