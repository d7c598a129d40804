"""Honest candidates of narrow numbers and samplers as sources, to be judged in real sandboxes."""

FP8 = """
import torch


def run(a, scale_a, b, scale_b, y):
    total = torch.zeros(a.shape[0], b.shape[0])
    for start in range(0, a.shape[1], 48):
        part = slice(start, start + 48)
        total += a[:, part].float() @ b[:, part].float().T
    y.copy_(total * scale_a[:, None] * scale_b)
"""
NVFP4 = """
import torch

NUMBERS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def wide(codes, scales):
    both = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
    values = NUMBERS[(both & 7).long()] * (1 - 2.0 * (both >> 3))
    return values * scales.float().repeat_interleave(16, -1)


def run(a, scale_a, b, scale_b, alpha, y):
    y.copy_(wide(a, scale_a) @ wide(b, scale_b).T * alpha)
"""
QUANTIZE = """
#include <cmath>
#include <cstdint>
#include <cstring>
static float widen(uint16_t half) {
  uint32_t bits = uint32_t(half) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static float e4m3(uint8_t code) {
  const int exponent = code >> 3, mantissa = code & 7;
  return exponent ? std::ldexp(8.0f + mantissa, exponent - 10) : std::ldexp(float(mantissa), -9);
}
static uint8_t to_e4m3(float value) {
  uint8_t code = 0;
  while (code < 0x7e && value > (e4m3(code) + e4m3(code + 1)) / 2) ++code;
  const bool tie = code < 0x7e && value == (e4m3(code) + e4m3(code + 1)) / 2;
  return tie && code % 2 ? code + 1 : code;
}
static uint8_t to_e2m1(float value) {
  const float v = std::fabs(value);
  const int size = (v > 0.25f) + (v >= 0.75f) + (v > 1.25f) + (v >= 1.75f) + (v > 2.5f) +
                   (v >= 3.5f) + (v > 5.0f);
  return uint8_t(size | (std::signbit(value) ? 8 : 0));
}
extern "C" void run(const uint16_t* x, const float* global_scale, uint8_t* codes, uint8_t* scales,
                    int64_t tokens, int64_t hidden) {
  for (int64_t block = 0; block < tokens * (hidden / 16); ++block) {
    const uint16_t* from = x + 16 * block;
    float most = 0;
    for (int i = 0; i < 16; ++i) most = std::fmax(most, std::fabs(widen(from[i])));
    scales[block] = to_e4m3(most / 6 * *global_scale);
    const float scale = e4m3(scales[block]);
    const float factor = scale > 0 ? *global_scale / scale : 0;
    for (int i = 0; i < 8; ++i)
      codes[8 * block + i] = uint8_t(to_e2m1(widen(from[2 * i]) * factor) |
                                     to_e2m1(widen(from[2 * i + 1]) * factor) << 4);
  }
}
"""
SAMPLE = """
import torch


def kept(row, top_k, top_p):
    order = row.sort(descending=True, stable=True).indices[:top_k]
    chances = torch.softmax(row[order], 0)
    order = order[(chances.cumsum(0) - chances < top_p).nonzero().flatten()].sort().values
    return order, torch.softmax(row[order], 0).cumsum(0)


def run(logits, uniform, ids, *, top_k, top_p):
    for i, row in enumerate(logits):
        order, running = kept(row, top_k, top_p)
        place = torch.searchsorted(running, uniform[i] * running[-1], right=True)
        ids[i] = order[min(int(place), len(order) - 1)]
"""
SEEDED = (
    SAMPLE.partition("def run")[0]
    + """
def number(seed):
    return torch.rand(1, generator=torch.Generator().manual_seed(seed * 7919 + 13)).item()


def run(logits, seeds, ids, *, top_k, top_p):
    drawn = {seed: number(seed) for seed in set(seeds.tolist())}
    numbers = torch.tensor([drawn[seed] for seed in seeds.tolist()])
    for i, row in enumerate(logits):
        order, running = kept(row, top_k, top_p)
        places = torch.searchsorted(running, numbers * running[-1], right=True)
        ids[i] = order[places.clamp(max=len(order) - 1)].int()
"""
)
SOURCES = {
    "matmul_fp8": FP8,
    "nvfp4_matmul": NVFP4,
    "nvfp4_quantize": QUANTIZE,
    "top_k_top_p_sample": SAMPLE,
    "top_k_top_p_sample_seeded": SEEDED,
}
FAULTS = {
    "matmul_fp8": FP8.replace("scale_a[:, None]", "scale_a[0]"),
    "nvfp4_matmul": NVFP4.replace("repeat_interleave(16, -1)", "repeat(1, 16)"),
    "nvfp4_quantize": QUANTIZE.replace("e4m3(scales[block]);", "most / 6 * *global_scale;"),
    "top_k_top_p_sample": SAMPLE.replace("uniform[i]", "0.5"),
    "top_k_top_p_sample_seeded": SEEDED.replace("number(seed) for", "0.5 for"),
}
