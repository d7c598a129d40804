#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <mma.h>

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef __nv_bfloat16 bf16;

// 128 x 64 of y a block.
constexpr int ROWS = 128, COLUMNS = 64;

__device__ void put(bf16* y, long long row, long long column, long long m, long long n, float sum) {
  if (row < m && column < n) y[row * n + column] = __float2bfloat16(sum);
}

#if __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
// 256 elements of k at a time: 128 bytes of each row as core matrices of 8 rows by 16 bytes, and
// for each 64 of them the four scales of a row as one word, rows by 32 next to each other.
constexpr int BYTES = 128, STEPS = 4;

template <int TALL>
__device__ void fetch(u8* to, u32* scales, const u8* from, const u8* factors, long long row,
                      long long rows, long long bytes, long long start) {
  for (int i = threadIdx.x; i < TALL * BYTES / 16; i += 256) {
    const int r = i / (BYTES / 16), c = i % (BYTES / 16);
    uint4 part = make_uint4(0, 0, 0, 0);
    if (row + r < rows && start + 16 * c < bytes)
      part = *(const uint4*)(from + (row + r) * bytes + start + 16 * c);
    *(uint4*)(to + (c * (TALL / 8) + r / 8) * 128 + r % 8 * 16) = part;
  }
  for (int i = threadIdx.x; i < STEPS * 128; i += 256) {
    const int step = i / 128, r = i % 128;
    u32 four = 0;
    for (int f = 0; f < 4; ++f) {
      const long long block = start / 8 + step * 4 + f / 2 * 2;
      if (r < TALL && row + r < rows && block < bytes / 8)
        four |= (u32)factors[(row + r) * (bytes / 8) + block] << 8 * f;
    }
    scales[step * 128 + r % 32 * 4 + r / 32] = four;
  }
}

__device__ u64 described(const void* place, int across) {
  const u64 at = (u32)__cvta_generic_to_shared(place);
  return (at & 0x3ffff) >> 4 | (u64)(across >> 4) << 16 | (u64)(128 >> 4) << 32 | 1ull << 46;
}

extern "C" __global__ void __launch_bounds__(256)
    nvfp4_matmul(const u8* a, const u8* scale_a, const u8* b, const u8* scale_b,
                 const float* alpha, bf16* y, long long m, long long n, long long bytes) {
  __shared__ alignas(1024) u8 left[ROWS * BYTES];
  __shared__ alignas(1024) u8 right[COLUMNS * BYTES];
  __shared__ alignas(1024) u32 left_scales[STEPS * 128];
  __shared__ alignas(1024) u32 right_scales[STEPS * 128];
  __shared__ alignas(8) u64 done;
  __shared__ u32 memory;
  const long long row = blockIdx.y * (long long)ROWS, column = blockIdx.x * (long long)COLUMNS;
  const int thread = threadIdx.x, warp = thread / 32;
  const u32 bar = (u32)__cvta_generic_to_shared(&done);
  const u32 told = (u32)__cvta_generic_to_shared(&memory);
  if (warp == 0)
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 128;" ::"r"(told));
  if (thread == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
  __syncthreads();
  const u32 sums = memory, left_at = sums + 64, right_at = sums + 96;
  const u32 kind = 1u << 7 | 1u << 10 | (u32)(COLUMNS / 8) << 17 | (u32)(ROWS / 128) << 27;
  int phase = 0, first = 1;
  for (long long start = 0; start < bytes; start += BYTES, phase ^= 1) {
    fetch<ROWS>(left, left_scales, a, scale_a, row, m, bytes, start);
    fetch<COLUMNS>(right, right_scales, b, scale_b, column, n, bytes, start);
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    if (thread == 0) {
      for (int step = 0; step < STEPS; ++step) {
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(left_at + 4 * step),
                     "l"(described(left_scales + step * 128, 16)));
        asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(right_at + 4 * step),
                     "l"(described(right_scales + step * 128, 16)));
      }
      for (int step = 0; step < STEPS; ++step) {
        const u64 one = described(left + step * 2 * ROWS * 16, ROWS * 16);
        const u64 two = described(right + step * 2 * COLUMNS * 16, COLUMNS * 16);
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %6, 0;\n"
            "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X "
            "[%0], %1, %2, %3, [%4], [%5], p;}" ::"r"(sums),
            "l"(one), "l"(two), "r"(kind), "r"(left_at + 4 * step), "r"(right_at + 4 * step),
            "r"(step + !first));
      }
      asm volatile(
          "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar));
    }
    first = 0;
    asm volatile(
        "{.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra again;}" ::"r"(bar), "r"(phase));
    __syncthreads();
  }
  asm volatile("tcgen05.fence::after_thread_sync;");
  if (warp < 4) {
    for (int part = 0; part < COLUMNS; part += 8) {
      u32 v[8];
      asm volatile(
          "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8];"
          : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]),
            "=r"(v[7])
          : "r"(sums + ((u32)warp << 21) + part));
      asm volatile("tcgen05.wait::ld.sync.aligned;");
      for (int i = 0; i < 8; ++i)
        put(y, row + thread, column + part + i, m, n, __uint_as_float(v[i]) * *alpha);
    }
  }
  asm volatile("tcgen05.fence::before_thread_sync;");
  __syncthreads();
  if (warp == 0)
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 128;" ::"r"(sums));
}
#else
using namespace nvcuda;

// 32 elements of k at a time; a number of four bits times its scale is exact in bf16.
constexpr int DEPTH = 32, PITCH = 40;

__device__ float widened(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const float size = exponent ? (2 + mantissa) * (1 << exponent) * 0.25f : mantissa * 0.5f;
  return code & 8 ? -size : size;
}

template <int TALL>
__device__ void fetch(bf16 (*to)[PITCH], const u8* from, const u8* factors, long long row,
                      long long rows, long long bytes, long long start) {
  for (int i = threadIdx.x; i < TALL * DEPTH / 2; i += 256) {
    const int r = i / (DEPTH / 2), c = i % (DEPTH / 2);
    float low = 0, high = 0;
    if (row + r < rows && start + c < bytes) {
      const u8 two = from[(row + r) * bytes + start + c];
      __nv_fp8_e4m3 factor;
      factor.__x = factors[(row + r) * (bytes / 8) + (start + c) / 16 * 2];
      low = widened(two & 15) * float(factor);
      high = widened(two >> 4) * float(factor);
    }
    to[r][2 * c] = __float2bfloat16(low);
    to[r][2 * c + 1] = __float2bfloat16(high);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    nvfp4_matmul(const u8* a, const u8* scale_a, const u8* b, const u8* scale_b,
                 const float* alpha, bf16* y, long long m, long long n, long long bytes) {
  __shared__ bf16 left[ROWS][PITCH], right[COLUMNS][PITCH];
  __shared__ float result[64][COLUMNS + 4];
  const long long row = blockIdx.y * (long long)ROWS, column = blockIdx.x * (long long)COLUMNS;
  const int warp = threadIdx.x / 32;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[COLUMNS / 16];
  for (auto& sum : sums) wmma::fill_fragment(sum, 0.0f);
  for (long long start = 0; start < bytes; start += DEPTH / 2) {
    fetch<ROWS>(left, a, scale_a, row, m, bytes, start);
    fetch<COLUMNS>(right, b, scale_b, column, n, bytes, start);
    __syncthreads();
    for (int step = 0; step < DEPTH; step += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, bf16, wmma::row_major> one;
      wmma::load_matrix_sync(one, &left[16 * warp][step], PITCH);
      for (int s = 0; s < COLUMNS / 16; ++s) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, bf16, wmma::col_major> two;
        wmma::load_matrix_sync(two, &right[16 * s][step], PITCH);
        wmma::mma_sync(sums[s], one, two, sums[s]);
      }
    }
    __syncthreads();
  }
  for (int half = 0; half < 2; ++half) {
    if (warp / 4 == half)
      for (int s = 0; s < COLUMNS / 16; ++s)
        wmma::store_matrix_sync(&result[warp % 4 * 16][16 * s], sums[s], COLUMNS + 4,
                                wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 64 * COLUMNS; i += 256)
      put(y, row + 64 * half + i / COLUMNS, column + i % COLUMNS, m, n,
          result[i / COLUMNS][i % COLUMNS] * *alpha);
    __syncthreads();
  }
}
#endif
