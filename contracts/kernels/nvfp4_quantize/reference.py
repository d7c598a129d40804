"""What nvfp4_quantize must compute, how well an honest kernel does, and how it goes wrong."""

import torch

_BLOCK = 16
_MOST_CODE, _MOST_SCALE = 6.0, 448.0
_BETWEEN = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
# Reciprocals and products in float32, approximate ones too, are off by less than this share.
_NEAR = 2.0**-18
_HIGHEST_CODE, _SIGN, _NAN = 7, 8, 0x7F


def _blocks(x):
    return x.unflatten(-1, (-1, _BLOCK))


def _raw_scales(x, global_scale, largest=_MOST_CODE):
    most = _blocks(x).abs().amax(-1) / largest * global_scale
    return most.clamp(max=_MOST_SCALE)


def _to_e4m3(scales):
    return scales.to(torch.float8_e4m3fn)


def _scaled(x, global_scale, scales):
    wide = scales.to(x.dtype).unsqueeze(-1)
    values = _blocks(x) * global_scale / wide
    return torch.where(wide > 0, values, 0.0).flatten(-2)


def _sizes(values):
    """Return codes of the nearest numbers without their signs; a tie goes to the even code."""
    between = torch.tensor(_BETWEEN, dtype=values.dtype, device=values.device)
    size = values.abs()
    below = torch.bucketize(size, between)
    above = torch.bucketize(size, between, right=True)
    return torch.where(below % 2 == 0, below, above)


def _pack(sizes, negative):
    codes = sizes.to(torch.uint8) + negative.to(torch.uint8) * _SIGN
    return codes[..., 0::2] + codes[..., 1::2] * 16


def _unpack(codes):
    return torch.stack((codes & 15, codes >> 4), dim=-1).flatten(-2).long()


def _quantised(x, global_scale, scales):
    values = _scaled(x, global_scale, scales)
    return {"codes": _pack(_sizes(values), torch.signbit(values)), "scales": scales}


def nvfp4_quantize(x, global_scale):
    return _quantised(x, global_scale, _to_e4m3(_raw_scales(x, global_scale)))


def nvfp4_quantize_f32(x, global_scale):
    return nvfp4_quantize(x.float(), global_scale)


def baseline(x, global_scale):
    return nvfp4_quantize_f32(x, global_scale)


def align(inputs, params, dims, outputs):
    """Return the expected outputs with the candidate's code wherever the exact value is a tie."""
    x, global_scale = inputs["x"].double(), inputs["global_scale"].double()
    exact = _raw_scales(x, global_scale)
    canonical = _to_e4m3(exact)
    own = outputs["scales"].view(torch.uint8).int()
    right = canonical.view(torch.uint8).int()
    middle = (outputs["scales"].double() + canonical.double()) / 2
    tie = ((own - right).abs() == 1) & (own < _NAN) & ((exact - middle).abs() <= _NEAR * exact)
    scales = torch.where(tie, own, right).to(torch.uint8).view(torch.float8_e4m3fn)
    values = _scaled(x, global_scale, scales)
    expected, codes = _sizes(values), _unpack(outputs["codes"])
    size, negative = codes & _HIGHEST_CODE, (codes & _SIGN) > 0
    between = torch.tensor(_BETWEEN, dtype=values.dtype, device=values.device)
    lower = torch.minimum(size, expected).clamp(max=_HIGHEST_CODE - 1)
    near = (values.abs() - between[lower]).abs() <= _NEAR * values.abs()
    same = (size == expected) | (((size - expected).abs() == 1) & near)
    valid = same & ((negative == torch.signbit(values)) | (size == 0))
    chosen = torch.where(valid, size, expected)
    signs = torch.where(valid, negative, torch.signbit(values))
    return {"codes": _pack(chosen, signs), "scales": scales}


def _scale_not_rounded(x, global_scale):
    raw = _raw_scales(x.float(), global_scale)
    return _quantised(x.float(), global_scale, raw) | {"scales": _to_e4m3(raw)}


def _scale_rounded_up(x, global_scale):
    raw = _raw_scales(x.float(), global_scale)
    scales = _to_e4m3(raw)
    codes = scales.view(torch.uint8)
    up = (scales.float() < raw) & (codes < _NAN - 1)
    return _quantised(x.float(), global_scale, (codes + up.to(torch.uint8)).view(scales.dtype))


def _divided_by_four(x, global_scale):
    raw = _raw_scales(x.float(), global_scale, largest=4.0)
    return _quantised(x.float(), global_scale, _to_e4m3(raw))


def _halves_swapped(x, global_scale):
    made = nvfp4_quantize_f32(x, global_scale)
    return made | {"codes": (made["codes"] >> 4) + (made["codes"] & 15) * 16}


def _cut_short_codes(x, global_scale):
    scales = _to_e4m3(_raw_scales(x.float(), global_scale))
    values = _scaled(x.float(), global_scale, scales)
    points = torch.tensor((0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
    sizes = torch.bucketize(values.abs(), points, right=True)
    return {"codes": _pack(sizes, torch.signbit(values)), "scales": scales}


def _global_scale_forgotten(x, global_scale):
    return nvfp4_quantize_f32(x, torch.ones_like(global_scale))


def _one_scale_a_row(x, global_scale):
    raw = _raw_scales(x.float(), global_scale)
    return _quantised(x.float(), global_scale, _to_e4m3(raw.amax(-1, keepdim=True).expand_as(raw)))


MUTANTS = {
    "scale_not_rounded": _scale_not_rounded,
    "scale_rounded_up": _scale_rounded_up,
    "divided_by_four": _divided_by_four,
    "halves_swapped": _halves_swapped,
    "cut_short_codes": _cut_short_codes,
    "global_scale_forgotten": _global_scale_forgotten,
    "one_scale_a_row": _one_scale_a_row,
}
