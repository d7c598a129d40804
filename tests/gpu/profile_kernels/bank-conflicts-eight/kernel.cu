extern __shared__ float row[];

__device__ float of_block(float part, bool largest) {
  __shared__ float parts[16];
  for (int d = 16; d; d >>= 1) {
    const float other = __shfl_xor_sync(~0u, part, d);
    part = largest ? fmaxf(part, other) : part + other;
  }
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  float whole = parts[0];
  for (int w = 1; w < 16; ++w) whole = largest ? fmaxf(whole, parts[w]) : whole + parts[w];
  __syncthreads();
  return whole;
}

// Rows of 4096 elements and of whole multiples of 512.
extern "C" __global__ void __launch_bounds__(512) softmax(const float* x, float* y, int cols) {
  const size_t start = (size_t)blockIdx.x * cols;
  for (int i = threadIdx.x; i < cols; i += 512) row[i] = x[start + i];
  __syncthreads();
  const int mine = cols / 512, first = threadIdx.x * mine;
  float largest = -INFINITY;
#pragma unroll 1
  for (int i = first; i < first + mine; ++i) largest = fmaxf(largest, row[i]);
  largest = of_block(largest, true);
  float sum = 0;
#pragma unroll 1
  for (int i = first; i < first + mine; ++i) {
    const float value = __expf(row[i] - largest);
    row[i] = value;
    sum += value;
  }
  const float scale = 1 / of_block(sum, false);
#pragma unroll 1
  for (int i = first; i < first + mine; ++i) row[i] *= scale;
  __syncthreads();
  for (int i = threadIdx.x; i < cols; i += 512) y[start + i] = row[i];
}
