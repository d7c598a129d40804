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

__device__ unsigned int place(const void* pointer) {
  return (unsigned int)__cvta_generic_to_shared(pointer);
}

// One thread orders a row; all wait until its bytes have arrived.
__device__ void order(void* to, const void* from, unsigned int bytes, unsigned long long* barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place(barrier)),
               "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          place(to)),
      "l"(from), "r"(bytes), "r"(place(barrier))
      : "memory");
}

__device__ void wait(unsigned long long* barrier, unsigned int phase) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(place(barrier)),
      "r"(phase)
      : "memory");
}

extern "C" __global__ void rms_norm(const bf16* x, const bf16* weight, bf16* y, int tokens,
                                    int hidden, float eps) {
  extern __shared__ __align__(128) bf16 rows[];
  __shared__ unsigned long long barriers[2];
  const unsigned int bytes = 2 * hidden;
  if (threadIdx.x == 0) {
    for (int b = 0; b < 2; ++b)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(place(&barriers[b])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) order(rows, x + (size_t)blockIdx.x * hidden, bytes, &barriers[0]);
  int number = 0;
  for (int row = blockIdx.x; row < tokens; row += gridDim.x, ++number) {
    const int buffer = number & 1, following = row + gridDim.x;
    if (threadIdx.x == 0 && following < tokens)
      order(rows + (buffer ^ 1) * hidden, x + (size_t)following * hidden, bytes,
            &barriers[buffer ^ 1]);
    wait(&barriers[buffer], number / 2 & 1);
    const bf16* in = rows + buffer * hidden;
    float part = 0;
    for (int i = threadIdx.x; i < hidden; i += blockDim.x) {
      const float v = __bfloat162float(in[i]);
      part += v * v;
    }
    const float scale = rsqrtf(total_of_block(part) / hidden + eps);
    for (int i = threadIdx.x; i < hidden; i += blockDim.x)
      y[(size_t)row * hidden + i] =
          __float2bfloat16(__bfloat162float(in[i]) * scale * __bfloat162float(weight[i]));
    __syncthreads();
  }
}
