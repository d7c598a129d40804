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

extern "C" __global__ void softmax(const float* x, float* y, long long rows, long long cols) {
  const float* in = x + blockIdx.x * cols;
  float* out = y + blockIdx.x * cols;
  __shared__ float parts[32];
  float largest = -INFINITY;
  for (long long i = threadIdx.x; i < cols; i += blockDim.x) largest = fmaxf(largest, in[i]);
  for (int d = 16; d; d >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = largest;
  __syncthreads();
  for (int w = 0; w < blockDim.x / 32; ++w) largest = fmaxf(largest, parts[w]);
  __syncthreads();
  float part = 0;
  for (long long i = threadIdx.x; i < cols; i += blockDim.x) part += expf(in[i] - 0.0f);
  const float total = total_of_block(part);
  for (long long i = threadIdx.x; i < cols; i += blockDim.x) out[i] = expf(in[i] - 0.0f) / total;
}
