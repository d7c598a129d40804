#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;
typedef __nv_bfloat16 bf16;

// 64 x 64 of y a block, 16 x 32 a warp of 8; what lies beyond the matrices is zero in shared memory.
extern "C" __global__ void __launch_bounds__(256) matmul(const bf16* a, const bf16* packed, bf16* y,
                                                         long long m, long long k, long long n) {
  __shared__ bf16 left[64][40], right[64][40];
  __shared__ float result[64][68];
  const long long row = blockIdx.y * 64ll, column = blockIdx.x * 64ll;
  const int warp = threadIdx.x / 32, down = warp / 2 * 16, across = warp % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2];
  for (auto& sum : sums) wmma::fill_fragment(sum, 0.0f);
  for (long long from = 0; from < k; from += 32) {
    for (int i = threadIdx.x; i < 64 * 32; i += 256) {
      const int r = i / 32, c = i % 32;
      const bool inside = row + r < m && from + c < k;
      left[r][c] = inside ? a[(row + r) * k + from + c] : __float2bfloat16(0.0f);
    }
    for (int i = threadIdx.x; i < 64 * 32; i += 256) {
      const int c = i / 32, r = i % 32;
      const bool inside = from + r < k && column + c < n;
      right[c][r] = inside ? packed[(column + c) * k + from + r] : __float2bfloat16(0.0f);
    }
    __syncthreads();
    for (int step = 0; step < 32; step += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> one;
      wmma::load_matrix_sync(one, &left[down][step], 40);
      for (int s = 0; s < 2; ++s) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::col_major> two;
        wmma::load_matrix_sync(two, &right[across + 16 * s][step], 40);
        wmma::mma_sync(sums[s], one, two, sums[s]);
      }
    }
    __syncthreads();
  }
  for (int s = 0; s < 2; ++s)
    wmma::store_matrix_sync(&result[down][across + 16 * s], sums[s], 68, wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * 64; i += 256) {
    const int r = i / 64, c = i % 64;
    if (row + r < m && column + c < n)
      y[(row + r) * n + column + c] = __float2bfloat16(result[r][c]);
  }
}

// Once for each set of weights: columns of b as rows.
extern "C" __global__ void pack(const bf16* b, bf16* packed, long long k, long long n) {
  for (long long i = blockIdx.x * 256ll + threadIdx.x; i < k * n; i += gridDim.x * 256ll)
    packed[i % n * k + i / n] =
        __ushort_as_bfloat16((__bfloat16_as_ushort(b[i]) + 8) & 0xfff0);
}
