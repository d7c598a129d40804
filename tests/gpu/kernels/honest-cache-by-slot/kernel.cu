#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

extern "C" __global__ void reshape_and_cache(const bf16* key, const bf16* value,
                                             const long long* slot_mapping, bf16* key_cache,
                                             bf16* value_cache, int tokens, int row) {
  __shared__ int found;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  for (int token = threadIdx.x; token < tokens; token += blockDim.x)
    if (slot_mapping[token] == blockIdx.x) atomicMax(&found, token);
  __syncthreads();
  if (found < 0) return;
  for (int i = threadIdx.x; i < row; i += blockDim.x) {
    key_cache[(size_t)blockIdx.x * row + i] = key[(size_t)found * row + i];
    value_cache[(size_t)blockIdx.x * row + i] = value[(size_t)found * row + i];
  }
}
