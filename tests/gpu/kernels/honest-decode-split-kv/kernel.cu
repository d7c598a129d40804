#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

constexpr int D = 128, G = 4, PAGE = 16, PARTS = 8;

__device__ void widen(uint4 v, float* out) {
  const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&v);
  for (int i = 0; i < 4; ++i) {
    const float2 f = __bfloat1622float2(pairs[i]);
    out[2 * i] = f.x;
    out[2 * i + 1] = f.y;
  }
}

// A block takes one share of the tokens of one sequence for the four query heads of one key head.
// Half a warp reads a key and a value of 128 elements; partial results meet in shared memory.
extern "C" __global__ void __launch_bounds__(128) decode_parts(
    const bf16* q, const bf16* k_cache, const bf16* v_cache, const int* block_table,
    const int* seq_lens, float* workspace, int kv_heads, int max_pages) {
  __shared__ float sums[PARTS][G][D], tops[PARTS][G], totals[PARTS][G];
  const int head = blockIdx.x, seq = blockIdx.y, split = blockIdx.z, splits = gridDim.z;
  const int half = threadIdx.x / 16, lane = threadIdx.x % 16;
  const unsigned int mine = half % 2 ? 0xffff0000u : 0x0000ffffu;
  const int length = seq_lens[seq], share = (length + splits - 1) / splits;
  const int first = split * share, last = min(length, first + share);
  const int* table = block_table + (size_t)seq * max_pages;
  float query[G][8], sum[G][8] = {}, top[G], total[G];
  for (int g = 0; g < G; ++g) {
    const size_t row = (size_t)(seq * kv_heads + head) * G + g;
    widen(reinterpret_cast<const uint4*>(q + row * D)[lane], query[g]);
    for (int i = 0; i < 8; ++i) query[g][i] *= 0.08838834764831845f * 1.4426950408889634f;
    top[g] = -INFINITY;
    total[g] = 0;
  }
#pragma unroll 4
  for (int t = first + half; t < last; t += PARTS) {
    const size_t row = ((size_t)table[t / PAGE] * PAGE + t % PAGE) * kv_heads + head;
    float key[8], value[8];
    widen(reinterpret_cast<const uint4*>(k_cache + row * D)[lane], key);
    widen(reinterpret_cast<const uint4*>(v_cache + row * D)[lane], value);
    for (int g = 0; g < G; ++g) {
      float score = 0;
      for (int i = 0; i < 8; ++i) score += query[g][i] * key[i];
      for (int d = 8; d; d >>= 1) score += __shfl_xor_sync(mine, score, d);
      const float higher = fmaxf(top[g], score);
      const float fade = exp2f(top[g] - higher), power = exp2f(score - higher);
      top[g] = higher;
      total[g] = total[g] * fade + power;
      for (int i = 0; i < 8; ++i) sum[g][i] = sum[g][i] * fade + power * value[i];
    }
  }
  for (int g = 0; g < G; ++g) {
    for (int i = 0; i < 8; ++i) sums[half][g][lane * 8 + i] = sum[g][i];
    if (lane == 0) {
      tops[half][g] = top[g];
      totals[half][g] = total[g];
    }
  }
  __syncthreads();
  float* ends = workspace + (size_t)gridDim.x * gridDim.y * G * splits * D;
  for (int g = 0; g < G; ++g) {
    float highest = -INFINITY, joined = 0, all = 0;
    for (int p = 0; p < PARTS; ++p) highest = fmaxf(highest, tops[p][g]);
    for (int p = 0; p < PARTS; ++p) {
      const float weight = tops[p][g] == -INFINITY ? 0 : exp2f(tops[p][g] - highest);
      joined += weight * sums[p][g][threadIdx.x];
      all += weight * totals[p][g];
    }
    const size_t place = ((size_t)(seq * kv_heads + head) * G + g) * splits + split;
    workspace[place * D + threadIdx.x] = joined;
    if (threadIdx.x == 0) {
      ends[2 * place] = highest;
      ends[2 * place + 1] = all;
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) decode(const float* workspace, bf16* o,
                                                         int splits) {
  const float* ends = workspace + (size_t)gridDim.x * splits * D;
  const size_t first = (size_t)blockIdx.x * splits;
  float highest = -INFINITY, joined = 0, all = 0;
  for (int s = 0; s < splits; ++s) highest = fmaxf(highest, ends[2 * (first + s)]);
  for (int s = 0; s < splits; ++s) {
    const float top = ends[2 * (first + s)];
    const float weight = top == -INFINITY ? 0 : exp2f(top - highest);
    joined += weight * workspace[(first + s) * D + threadIdx.x];
    all += weight * ends[2 * (first + s) + 1];
  }
  o[(size_t)blockIdx.x * D + threadIdx.x] = __float2bfloat16(joined / all);
}
