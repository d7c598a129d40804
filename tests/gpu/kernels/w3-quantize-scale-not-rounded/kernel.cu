#include <cuda_bf16.h>

typedef unsigned char u8;
typedef unsigned int u32;

__device__ u8 to_e4m3(float value) {
  unsigned short two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(value));
  return (u8)two;
}
__device__ float from_e4m3(u8 code) {
  const int exponent = code >> 3, mantissa = code & 7;
  return exponent ? ldexpf(8 + mantissa, exponent - 10) : ldexpf(mantissa, -9);
}

// Two numbers to a byte, the first in the low half; ties go to the even code.
__device__ u8 to_e2m1x2(float first, float second) {
#if __CUDA_ARCH__ >= 1000
  u32 both;
  asm("{.reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, %1, %2; cvt.u32.u8 %0, t;}"
      : "=r"(both) : "f"(second), "f"(first));
  return (u8)both;
#else
  u32 code = 0;
  const float values[2] = {first, second};
  for (int i = 0; i < 2; ++i) {
    const float v = fabsf(values[i]);
    const u32 size = (v > 0.25f) + (v >= 0.75f) + (v > 1.25f) + (v >= 1.75f) + (v > 2.5f) +
                     (v >= 3.5f) + (v > 5.0f);
    code |= (size | (signbit(values[i]) ? 8u : 0u)) << 4 * i;
  }
  return (u8)code;
#endif
}

extern "C" __global__ void nvfp4_quantize(const __nv_bfloat16* x, const float* global_scale,
                                          uint2* codes, u8* scales, long long blocks) {
  const long long block = blockIdx.x * 256ll + threadIdx.x;
  if (block >= blocks) return;
  const uint4* from = (const uint4*)(x + block * 16);
  const uint4 halves[2] = {from[0], from[1]};
  const __nv_bfloat162* pairs = (const __nv_bfloat162*)halves;
  float most = 0;
  for (int i = 0; i < 8; ++i)
    most = fmaxf(most, fmaxf(fabsf(__low2float(pairs[i])), fabsf(__high2float(pairs[i]))));
  const float global = *global_scale;
  const u8 scale = to_e4m3(most / 6.0f * global);
  const float wide = fminf(most / 6.0f * global, 448.0f);
  const float factor = wide > 0 ? global / wide : 0.0f;
  u32 words[2] = {0, 0};
  for (int i = 0; i < 8; ++i) {
    const u32 two = to_e2m1x2(__low2float(pairs[i]) * factor, __high2float(pairs[i]) * factor);
    words[i / 4] |= two << i % 4 * 8;
  }
  codes[block] = make_uint2(words[0], words[1]);
  scales[block] = scale;
}
