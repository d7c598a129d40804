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

extern "C" __global__ void row_facts(const float* x, float2* facts, int cols) {
  __shared__ float tops[8];
  const float* in = x + (size_t)blockIdx.x * cols;
  float top = -INFINITY, part = 0;
  for (int i = threadIdx.x; i < cols; i += 256) top = fmaxf(top, in[i]);
  for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
  __syncthreads();
  for (int w = 0; w < 8; ++w) top = fmaxf(top, tops[w]);
  for (int i = threadIdx.x; i < cols; i += 256) part += expf(in[i] - top);
  const float total = total_of_block(part);
  if (threadIdx.x == 0) facts[blockIdx.x] = make_float2(top, 1 / total);
}

extern "C" __global__ void softmax(const float* x, const float2* facts, float* y, int cols) {
  const float2 fact = facts[blockIdx.y];
  const size_t first = (size_t)blockIdx.y * cols;
  for (int i = blockIdx.x * 1024 + threadIdx.x; i < min(cols, blockIdx.x * 1024 + 1024); i += 256)
    y[first + i] = expf(x[first + i] - fact.x) * fact.y;
}
