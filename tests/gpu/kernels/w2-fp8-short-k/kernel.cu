#include <cuda_bf16.h>

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// 128 x 64 of y a block. Shared memory holds 128 x 128 of a and 64 x 128 of b as core matrices of
// 8 rows by 16 bytes: rows next to each other first, then columns.
constexpr int ROWS = 128, COLUMNS = 64, DEPTH = 128;

template <int TALL>
__device__ void fetch(u8* to, const u8* from, long long row, long long rows, long long k,
                      long long start) {
  for (int i = threadIdx.x; i < TALL * DEPTH / 16; i += 256) {
    const int r = i / (DEPTH / 16), c = i % (DEPTH / 16);
    uint4 part = make_uint4(0, 0, 0, 0);
    if (row + r < rows && start + 16 * c < k - (k > 16 ? 16 : 0))
      part = *(const uint4*)(from + (row + r) * k + start + 16 * c);
    *(uint4*)(to + (c * (TALL / 8) + r / 8) * 128 + r % 8 * 16) = part;
  }
}

// Where core matrices lie: `across` bytes from one to the next along k, 128 along the rows.
__device__ u64 described(const void* place, int across) {
  const u64 at = (u32)__cvta_generic_to_shared(place);
  return (at & 0x3ffff) >> 4 | (u64)(across >> 4) << 16 | (u64)(128 >> 4) << 32;
}

__device__ void put(__nv_bfloat16* y, const float* scale_a, const float* scale_b, long long row,
                    long long column, long long m, long long n, float sum) {
  if (row < m && column < n)
    y[row * n + column] = __float2bfloat16(sum * scale_a[row] * scale_b[column]);
}

extern "C" __global__ void __launch_bounds__(256)
    matmul_fp8(const u8* a, const float* scale_a, const u8* b, const float* scale_b,
               __nv_bfloat16* y, long long m, long long n, long long k) {
  __shared__ alignas(1024) u8 left[ROWS * DEPTH];
  __shared__ alignas(1024) u8 right[COLUMNS * DEPTH];
  const long long row = blockIdx.y * (long long)ROWS, column = blockIdx.x * (long long)COLUMNS;
  const int thread = threadIdx.x, warp = thread / 32;
#if __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
  __shared__ alignas(8) u64 done;
  __shared__ u32 sums_at;
  const u32 bar = (u32)__cvta_generic_to_shared(&done);
  const u32 told = (u32)__cvta_generic_to_shared(&sums_at);
  if (warp == 0)
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(told));
  if (thread == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
  __syncthreads();
  const u32 sums = sums_at;
  const u32 kind = 1u << 4 | (u32)(COLUMNS / 8) << 17 | (u32)(ROWS / 16) << 24;
  float total[COLUMNS];
  for (int i = 0; i < COLUMNS; ++i) total[i] = 0;
  int phase = 0;
  for (long long start = 0; start < k; start += DEPTH, phase ^= 1) {
    fetch<ROWS>(left, a, row, m, k, start);
    fetch<COLUMNS>(right, b, column, n, k, start);
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    if (thread == 0) {
      const u64 version = 1ull << 46;
      for (int step = 0; step < DEPTH / 32; ++step) {
        const u64 one = described(left + step * 2 * ROWS * 16, ROWS * 16) | version;
        const u64 two = described(right + step * 2 * COLUMNS * 16, COLUMNS * 16) | version;
        asm volatile(
            "{.reg .pred p; setp.ne.b32 p, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p;}" ::"r"(sums),
            "l"(one), "l"(two), "r"(kind), "r"(step));
      }
      asm volatile(
          "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar));
    }
    asm volatile(
        "{.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra again;}" ::"r"(bar), "r"(phase));
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
        for (int i = 0; i < 8; ++i) total[part + i] += __uint_as_float(v[i]);
      }
    }
    asm volatile("tcgen05.fence::before_thread_sync;");
    __syncthreads();
  }
  if (warp < 4)
    for (int i = 0; i < COLUMNS; ++i)
      put(y, scale_a, scale_b, row + thread, column + i, m, n, total[i]);
  __syncthreads();
  if (warp == 0)
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" ::"r"(sums));
#elif __CUDA_ARCH__ == 900
  float total[32], part[32];
  for (int i = 0; i < 32; ++i) total[i] = 0;
  for (long long start = 0; start < k; start += DEPTH) {
    fetch<ROWS>(left, a, row, m, k, start);
    fetch<COLUMNS>(right, b, column, n, k, start);
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    for (int i = 0; i < 32; ++i) part[i] = 0;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < DEPTH / 32; ++step) {
      const u8* half = left + step * 2 * ROWS * 16 + thread / 128 * (64 / 8) * 128;
      const u64 one = described(half, ROWS * 16);
      const u64 two = described(right + step * 2 * COLUMNS * 16, COLUMNS * 16);
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
          "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
          "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1;"
          : "+f"(part[0]), "+f"(part[1]), "+f"(part[2]), "+f"(part[3]), "+f"(part[4]),
            "+f"(part[5]), "+f"(part[6]), "+f"(part[7]), "+f"(part[8]), "+f"(part[9]),
            "+f"(part[10]), "+f"(part[11]), "+f"(part[12]), "+f"(part[13]), "+f"(part[14]),
            "+f"(part[15]), "+f"(part[16]), "+f"(part[17]), "+f"(part[18]), "+f"(part[19]),
            "+f"(part[20]), "+f"(part[21]), "+f"(part[22]), "+f"(part[23]), "+f"(part[24]),
            "+f"(part[25]), "+f"(part[26]), "+f"(part[27]), "+f"(part[28]), "+f"(part[29]),
            "+f"(part[30]), "+f"(part[31])
          : "l"(one), "l"(two));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < 32; ++i) total[i] += part[i];
    __syncthreads();
  }
  const int lane = thread % 32;
  for (int i = 0; i < 32; ++i)
    put(y, scale_a, scale_b, row + warp * 16 + lane / 4 + i / 2 % 2 * 8,
        column + i / 4 * 8 + lane % 4 * 2 + i % 2, m, n, total[i]);
#endif
}
