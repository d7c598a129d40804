#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

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

#include <cooperative_groups.h>

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, long long hidden,
                                    float eps) {
  __shared__ float mine;
  auto cluster = cooperative_groups::this_cluster();
  const long long first = blockIdx.x / 2 * hidden;
  const int rank = cluster.block_rank();
  float part = 0;
  for (long long i = threadIdx.x + rank * blockDim.x; i < hidden; i += 2 * blockDim.x) {
    const float v = __bfloat162float(x[first + i]);
    part += v * v;
  }
  part = total_of_block(part);
  if (threadIdx.x == 0) mine = part;
  cluster.sync();
  const float scale = rsqrtf((part + *cluster.map_shared_rank(&mine, 1 - rank)) / hidden + eps);
  for (long long i = threadIdx.x + rank * blockDim.x; i < hidden; i += 2 * blockDim.x)
    y[first + i] = __float2bfloat16(__bfloat162float(x[first + i]) * scale *
                                    __bfloat162float(weight[i]));
  cluster.sync();
}
