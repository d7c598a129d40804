__device__ float total_of_block(float part) {
  __shared__ float parts[32];
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < blockDim.x / 32; ++w) total += parts[w];
  __syncthreads();
  return total;
}

extern "C" __global__ void softmax(const float* x, float* y, int cols) {
  extern __shared__ float powers[];
  __shared__ float tops[8];
  const float* in = x + (size_t)blockIdx.x * cols;
  float top = -INFINITY, part = 0;
  for (int i = threadIdx.x; i < cols; i += 256) top = fmaxf(top, in[i]);
  for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
  __syncthreads();
  for (int w = 0; w < 8; ++w) top = fmaxf(top, tops[w]);
  for (int i = threadIdx.x; i < cols; i += 256) part += powers[i] = expf(in[i] - top);
  const float factor = 1 / total_of_block(part);
  for (int i = threadIdx.x; i < cols; i += 256) y[(size_t)blockIdx.x * cols + i] = powers[i] * factor;
}
