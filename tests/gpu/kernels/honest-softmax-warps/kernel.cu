extern "C" __global__ void softmax(const float* x, float* y, int rows, int cols) {
  const int row = blockIdx.x * 4 + threadIdx.y;
  if (row >= rows) return;
  const float* in = x + (size_t)row * cols;
  float top = -INFINITY, total = 0;
  for (int i = threadIdx.x; i < cols; i += 32) top = fmaxf(top, in[i]);
  for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  for (int i = threadIdx.x; i < cols; i += 32) total += expf(in[i] - top);
  for (int d = 16; d; d >>= 1) total += __shfl_xor_sync(~0u, total, d);
  for (int i = threadIdx.x; i < cols; i += 32)
    y[(size_t)row * cols + i] = expf(in[i] - top) / total;
}
