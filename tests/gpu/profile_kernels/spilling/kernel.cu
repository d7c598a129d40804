constexpr int kMine = 64;

__device__ float of_warp_pair(float part, float* parts, bool largest) {
  for (int d = 16; d; d >>= 1) {
    const float other = __shfl_xor_sync(~0u, part, d);
    part = largest ? fmaxf(part, other) : part + other;
  }
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = part;
  __syncthreads();
  const float whole = largest ? fmaxf(parts[0], parts[1]) : parts[0] + parts[1];
  __syncthreads();
  return whole;
}

// A row of up to 4096 elements would lie in the registers of 64 threads, but 32 blocks are asked to
// share a multiprocessor, which leaves 32 registers to a thread.
extern "C" __global__ void __launch_bounds__(64, 32) softmax(const float* x, float* y, int cols) {
  __shared__ float parts[2];
  const float* in = x + (size_t)blockIdx.x * cols;
  float* out = y + (size_t)blockIdx.x * cols;
  float mine[kMine];
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int at = i * 64 + threadIdx.x;
    mine[i] = at < cols ? in[at] : -INFINITY;
    largest = fmaxf(largest, mine[i]);
  }
  largest = of_warp_pair(largest, parts, true);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    mine[i] = __expf(mine[i] - largest);
    sum += mine[i];
  }
  const float scale = 1 / of_warp_pair(sum, parts, false);
#pragma unroll
  for (int i = 0; i < kMine; ++i) {
    const int at = i * 64 + threadIdx.x;
    if (at < cols) out[at] = mine[i] * scale;
  }
}
