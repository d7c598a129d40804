extern "C" __global__ void softmax(const float* x, float* y, int cols) {
  __shared__ float tops[8], totals[8];
  const float* in = x + (size_t)blockIdx.x * cols;
  float top = -INFINITY, total = 0;
  for (int i = threadIdx.x; i < cols; i += 256) {
    const float higher = fmaxf(top, in[i]);
    total = total * expf(top - higher) + expf(in[i] - higher);
    top = higher;
  }
  for (int d = 16; d; d >>= 1) {
    const float other = __shfl_xor_sync(~0u, top, d), its = __shfl_xor_sync(~0u, total, d);
    const float higher = fmaxf(top, other);
    if (higher > -INFINITY) total = total * expf(top - higher) + its * expf(other - higher);
    top = higher;
  }
  if (threadIdx.x % 32 == 0) {
    tops[threadIdx.x / 32] = top;
    totals[threadIdx.x / 32] = total;
  }
  __syncthreads();
  top = -INFINITY;
  for (int w = 0; w < 8; ++w) top = fmaxf(top, tops[w]);
  total = 0;
  for (int w = 0; w < 8; ++w)
    if (totals[w] > 0) total += totals[w] * expf(tops[w] - top);
  for (int i = threadIdx.x; i < cols; i += 256)
    y[(size_t)blockIdx.x * cols + i] = expf(in[i] - top) / total;
}
