#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;
typedef unsigned int u32;

struct alignas(64) Map {
  unsigned char bytes[128];
};
constexpr int BOX = 256;

__device__ float total_of_block(float part) {
  __shared__ float parts[32];
  for (int d = 16; d; d >>= 1) part += __shfl_xor_sync(~0u, part, d);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < blockDim.x / 32; ++w) total += parts[w];
  return total;
}

// A row comes into shared memory by bulk copies of boxes; what lies beyond it comes as zeros.
extern "C" __global__ void rms_norm(const __grid_constant__ Map rows, const bf16* weight, bf16* y,
                                    long long hidden, float eps) {
  extern __shared__ __align__(128) bf16 row[];
  __shared__ alignas(8) unsigned long long arrived;
  const u32 bar = (u32)__cvta_generic_to_shared(&arrived);
  const int boxes = (int)((hidden + BOX - 1) / BOX);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.proxy.async.shared::cta;");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                 "r"(boxes * BOX * 2)
                 : "memory");
    for (int i = 0; i < boxes; ++i)
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
          "[%0], [%1, {%2, %3}], [%4];" ::"r"((u32)__cvta_generic_to_shared(row + i * BOX)),
          "l"(&rows), "r"(i * BOX), "r"((int)blockIdx.x), "r"(bar)
          : "memory");
  }
  asm volatile(
      "{.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n"
      "@!p bra again;}" ::"r"(bar)
      : "memory");
  float part = 0;
  for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
    const float v = __bfloat162float(row[i]);
    part += v * v;
  }
  const float scale = rsqrtf(total_of_block(part) / hidden + eps);
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    y[blockIdx.x * hidden + i] =
        __float2bfloat16(__bfloat162float(row[i]) * scale * __bfloat162float(weight[i]));
}
