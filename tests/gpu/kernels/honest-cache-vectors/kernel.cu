extern "C" __global__ void claim(const long long* slot_mapping, int* owners, long long tokens) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < tokens && slot_mapping[i] >= 0) owners[slot_mapping[i]] = i;
}

extern "C" __global__ void reshape_and_cache(const uint4* key, const uint4* value,
                                             const long long* slot_mapping, uint4* key_cache,
                                             uint4* value_cache, const int* owners, int tokens,
                                             int row) {
  const long long count = (long long)tokens * row;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count;
       i += gridDim.x * (long long)blockDim.x) {
    const int token = i / row, column = i % row;
    const long long slot = slot_mapping[token];
    if (slot < 0 || owners[slot] != token) continue;
    key_cache[slot * row + column] = key[i];
    value_cache[slot * row + column] = value[i];
  }
}
