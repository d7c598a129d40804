#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>

using namespace nvcuda;

// Operands as halves, which hold them exactly, and 16-bit matrix instructions.
constexpr int SIZE = 64, DEPTH = 32, PITCH = 40;

__device__ void widen(half (*to)[PITCH], const unsigned char* from, long long row, long long rows,
                      long long k, long long start) {
  for (int i = threadIdx.x; i < SIZE * DEPTH; i += 256) {
    const int r = i / DEPTH, c = i % DEPTH;
    __nv_fp8_e4m3 value;
    value.__x = row + r < rows && start + c < k ? from[(row + r) * k + start + c] : 0;
    to[r][c] = __float2half(float(value));
  }
}

extern "C" __global__ void __launch_bounds__(256)
    raised(const unsigned char* a, const float* scale_a, const unsigned char* b,
           const float* scale_b, __nv_bfloat16* y, long long m, long long n, long long k) {
  __shared__ half left[SIZE][PITCH], right[SIZE][PITCH];
  __shared__ float result[SIZE][SIZE + 4];
  const long long row = blockIdx.y * (long long)SIZE, column = blockIdx.x * (long long)SIZE;
  const int warp = threadIdx.x / 32, down = warp / 2 * 16, across = warp % 2 * 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2];
  for (auto& sum : sums) wmma::fill_fragment(sum, 0.0f);
  for (long long start = 0; start < k; start += DEPTH) {
    widen(left, a, row, m, k, start);
    widen(right, b, column, n, k, start);
    __syncthreads();
    for (int step = 0; step < DEPTH; step += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> one;
      wmma::load_matrix_sync(one, &left[down][step], PITCH);
      for (int s = 0; s < 2; ++s) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> two;
        wmma::load_matrix_sync(two, &right[across + 16 * s][step], PITCH);
        wmma::mma_sync(sums[s], one, two, sums[s]);
      }
    }
    __syncthreads();
  }
  for (int s = 0; s < 2; ++s)
    wmma::store_matrix_sync(&result[down][across + 16 * s], sums[s], SIZE + 4,
                            wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < SIZE * SIZE; i += 256) {
    const int r = i / SIZE, c = i % SIZE;
    if (row + r < m && column + c < n)
      y[(row + r) * n + column + c] =
          __float2bfloat16(result[r][c] * scale_a[row + r] * scale_b[column + c]);
  }
}
