"""What rotary_embedding must compute, how well an honest kernel does, and how it goes wrong."""

import torch


def rotary_embedding(q, k, positions, cos_sin):
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    return {"q_out": _rotate(q, cos, sin), "k_out": _rotate(k, cos, sin)}


def _rotate(x, cos, sin):
    first, second = x.unflatten(-1, (-1, 2 * cos.shape[-1])).chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return turned.flatten(-2)


def rotary_embedding_bf16(q, k, positions, cos_sin):
    turned = rotary_embedding(q.float(), k.float(), positions, cos_sin)
    return {name: value.to(q.dtype) for name, value in turned.items()}


def baseline(q, k, positions, cos_sin):
    return rotary_embedding_bf16(q, k, positions, cos_sin)


def _interleaved(q, k, positions, cos_sin):
    size = cos_sin.shape[-1]
    order = torch.cat([torch.arange(0, size, 2), torch.arange(1, size, 2)])
    paired = [x.unflatten(-1, (-1, size))[..., order].flatten(-2) for x in (q, k)]
    turned = rotary_embedding_bf16(*paired, positions, cos_sin)
    back = order.argsort()
    return {
        name: value.unflatten(-1, (-1, size))[..., back].flatten(-2)
        for name, value in turned.items()
    }


def _wrong_sign(q, k, positions, cos_sin):
    cos, sin = cos_sin.chunk(2, dim=-1)
    return rotary_embedding_bf16(q, k, positions, torch.cat([cos, -sin], dim=-1))


def _next_position(q, k, positions, cos_sin):
    return rotary_embedding_bf16(q, k, (positions + 1) % cos_sin.shape[0], cos_sin)


def _row_as_position(q, k, positions, cos_sin):
    rows = torch.arange(positions.shape[0]) % cos_sin.shape[0]
    return rotary_embedding_bf16(q, k, rows, cos_sin)


def _k_untouched(q, k, positions, cos_sin):
    return {**rotary_embedding_bf16(q, k, positions, cos_sin), "k_out": k.clone()}


MUTANTS = {
    "interleaved": _interleaved,
    "wrong_sign": _wrong_sign,
    "next_position": _next_position,
    "row_as_position": _row_as_position,
    "k_untouched": _k_untouched,
}
