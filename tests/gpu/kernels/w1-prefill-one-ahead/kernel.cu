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

// A block a query head of a token: scores in shared memory, then one element of the head a thread.
extern "C" __global__ void prefill(const bf16* q, const bf16* k_cache, const bf16* v_cache,
                                   const int* block_table, const int* prefix_lens, bf16* o,
                                   int chunk, int columns, int page_size, int heads, int kv_heads,
                                   int head_dim) {
  extern __shared__ float scores[];
  const int seq = blockIdx.y / chunk, at = blockIdx.y % chunk, head = blockIdx.x;
  const int kv = head / (heads / kv_heads), length = min(prefix_lens[seq] + chunk, prefix_lens[seq] + at + 2);
  const int* table = block_table + (size_t)seq * columns;
  const bf16* query = q + ((size_t)blockIdx.y * heads + head) * head_dim;
  float largest = -INFINITY;
  for (int t = threadIdx.x; t < length; t += blockDim.x) {
    const size_t row = ((size_t)table[t / page_size] * page_size + t % page_size) * kv_heads + kv;
    const bf16* key = k_cache + row * head_dim;
    float score = 0;
    for (int i = 0; i < head_dim; ++i) score += __bfloat162float(query[i]) * __bfloat162float(key[i]);
    scores[t] = score * rsqrtf(head_dim);
    largest = fmaxf(largest, scores[t]);
  }
  __shared__ float tops[32];
  for (int d = 16; d; d >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
  if ((threadIdx.x & 31) == 0) tops[threadIdx.x >> 5] = largest;
  __syncthreads();
  for (int w = 0; w < blockDim.x / 32; ++w) largest = fmaxf(largest, tops[w]);
  float part = 0;
  for (int t = threadIdx.x; t < length; t += blockDim.x) {
    scores[t] = expf(scores[t] - largest);
    part += scores[t];
  }
  const float total = total_of_block(part);
  for (int i = threadIdx.x; i < head_dim; i += blockDim.x) {
    float sum = 0;
    for (int t = 0; t < length; ++t) {
      const size_t row = ((size_t)table[t / page_size] * page_size + t % page_size) * kv_heads + kv;
      sum += scores[t] * __bfloat162float(v_cache[row * head_dim + i]);
    }
    o[((size_t)blockIdx.y * heads + head) * head_dim + i] = __float2bfloat16(sum / total);
  }
}
