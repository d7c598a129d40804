#include <cuda_bf16.h>
#include <mma.h>

using namespace nvcuda;
typedef __nv_bfloat16 bf16;

extern "C" __global__ void __launch_bounds__(128) matmul(const bf16* a, const bf16* b, bf16* y, int m,
                                                         int k, int n) {
  __shared__ bf16 left[32][40], right[32][40];
  __shared__ float result[32][36];
  const int warp = threadIdx.x / 32, down = warp / 2 * 16, across = warp % 2 * 16;
  const int wide = (n + 31) / 32, tiles = (m + 31) / 32 * wide;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int row = tile / wide * 32, column = tile % wide * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int from = 0; from < k; from += 32) {
      for (int i = threadIdx.x; i < 32 * 32; i += 128) {
        const int r = i / 32, c = i % 32;
        left[r][c] = row + r < m && from + c < k ? a[(size_t)(row + r) * k + from + c]
                                                 : __float2bfloat16(0.0f);
        right[r][c] = from + r < k && column + c < n ? b[(size_t)(from + r) * n + column + c]
                                                     : __float2bfloat16(0.0f);
      }
      __syncthreads();
      for (int step = 0; step < 32; step += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> one;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::row_major> two;
        wmma::load_matrix_sync(one, &left[down][step], 40);
        wmma::load_matrix_sync(two, &right[step][across], 40);
        wmma::mma_sync(sum, one, two, sum);
      }
      __syncthreads();
    }
    wmma::store_matrix_sync(&result[down][across], sum, 36, wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * 32; i += 128) {
      const int r = i / 32, c = i % 32;
      if (row + r < m && column + c < n)
        y[(size_t)(row + r) * n + column + c] = __float2bfloat16(result[r][c]);
    }
    __syncthreads();
  }
}
