"""The shipped kernel contracts at sizes that a test can afford, and honest ways to write them."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import torch
import yaml
from torch import Tensor

import honest_kernels
from inferproof.core.contract import KernelContract
from inferproof_remote.draws import PlannedCall, Scope, make_plan
from inferproof_remote.inputs import InputMaker, Tensors
from inferproof_remote.kernel import Extent, Kernel, parse_kernel
from inferproof_remote.oracle import Oracle, Question

LIBRARY = Path(__file__).parents[1] / "contracts" / "kernels"
NAMES = (
    *("fused_add_rms_norm", "fused_moe", "gqa_paged_decode", "gqa_paged_prefill", "matmul"),
    *("matmul_fp8", "nvfp4_matmul", "nvfp4_quantize"),
    *("reshape_and_cache", "rms_norm", "rotary_embedding", "silu_and_mul", "softmax"),
    *("top_k_top_p_sample", "top_k_top_p_sample_seeded", "topk_router"),
)
MODEL = {
    "hidden": 256,
    "inter": 160,
    "heads": 6,
    "kv_heads": 2,
    "head_dim": 64,
    "experts": 64,
    "vocab": 1000,
}
MOST = 200
# What takes long to compute is tried on smaller sizes, and on fewer draws.
MOST_OF = {
    "fused_add_rms_norm": 100,
    "fused_moe": 64,
    "gqa_paged_decode": 12,
    "gqa_paged_prefill": 12,
    "matmul_fp8": 40,
    "nvfp4_matmul": 40,
    "nvfp4_quantize": 40,
    "top_k_top_p_sample": 40,
    "top_k_top_p_sample_seeded": 8,
    "reshape_and_cache": 60,
}
FEWER = dict.fromkeys(
    ("matmul_fp8", "nvfp4_matmul", "nvfp4_quantize", "top_k_top_p_sample"), 10
) | {"top_k_top_p_sample_seeded": 20}
Compute: TypeAlias = Callable[..., Tensors]


def read_contract(name: str) -> KernelContract:
    text = (LIBRARY / name / "contract.yaml").read_text(encoding="utf-8")
    return KernelContract.model_validate(yaml.safe_load(text))


def load(name: str, *, most: int = MOST) -> tuple[Kernel, Oracle]:
    """Return a contract for a small model, with what can be drawn at most `most`."""
    contract = read_contract(name)
    fixed = {dim: MODEL[dim] for dim in contract.dims if contract.dims[dim].from_model}
    raw = contract.model_dump(mode="json", by_alias=True)
    largest = dict.fromkeys(contract.dims, min(most, MOST_OF.get(name, most)))
    kernel = parse_kernel(raw, fixed=fixed, most=largest)
    return kernel, Oracle(kernel, LIBRARY / name)


def single(name: str, **dims: int) -> tuple[Kernel, Oracle]:
    """Return a contract with only one shape."""
    kernel, _ = load(name)
    extents = {dim: Extent(low=size, high=size) for dim, size in dims.items()}
    kernel = replace(kernel, extents={**kernel.extents, **extents})
    return kernel, Oracle(kernel, LIBRARY / name)


def baseline_of(name: str) -> Compute:
    """Return what a torch user would write for the contract."""
    path = LIBRARY / name / "reference.py"
    spec = importlib.util.spec_from_file_location(f"{name}_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.baseline


def seeds(name: str, count: int) -> range:
    """Return `count` seeds, or fewer for a contract that takes long."""
    return range(count // FEWER.get(name, 4 if name in MOST_OF else 1))


def seeded(seed: int) -> bytes:
    return bytes([seed, 11]) * 16


class Planned:
    """The calls of one plan with their inputs and questions."""

    def __init__(self, name: str, seed: int, *, zoo: bool = True) -> None:
        self.kernel, self.oracle = load(name)
        self._maker = InputMaker(seeded(seed), self.kernel)
        scope = Scope(graded=True, zoo=zoo, timing=False)
        self.plan = make_plan(seeded(seed), self.kernel, scope)

    def inputs(self, call: PlannedCall) -> Tensors:
        if call.phase != "near_duplicate" or call.base is None:
            return self._maker.make(call.inputs, call.dims, call.family)
        base = self.plan.calls[call.base]
        given = self._maker.make(base.inputs, base.dims, base.family)
        return self._maker.make_near(call.inputs, given)

    def question(self, call: PlannedCall) -> Question:
        return self.oracle.ask(self.inputs(call), call.dims)


def _rms_two_roundings(x: Tensor, weight: Tensor, *, eps: float) -> Tensors:
    rows = x.float()
    normed = (rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return {"y": normed * weight}


def _rms_chunked(x: Tensor, weight: Tensor, *, eps: float) -> Tensors:
    rows = x.float()
    total = torch.zeros(rows.shape[0])
    for start in range(0, rows.shape[-1], 5):
        total += rows[:, start : start + 5].square().sum(-1)
    root = 1.0 / torch.sqrt(total / rows.shape[-1] + eps).unsqueeze(-1)
    return {"y": (rows * root * weight.float()).to(x.dtype)}


def _silu_two_roundings(x: Tensor) -> Tensors:
    gate, up = x.chunk(2, dim=-1)
    return {"y": torch.nn.functional.silu(gate) * up}


def _silu_by_tanh(x: Tensor) -> Tensors:
    gate, up = x.float().chunk(2, dim=-1)
    return {"y": (gate * (0.5 + 0.5 * torch.tanh(0.5 * gate)) * up).to(x.dtype)}


def _rope_complex(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> Tensors:
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    turn = torch.complex(cos, sin)
    turned: dict[str, Tensor] = {}
    for name, x in (("q_out", q), ("k_out", k)):
        first, second = x.float().view(x.shape[0], -1, cos_sin.shape[-1]).chunk(2, dim=-1)
        both = torch.complex(first, second) * turn
        turned[name] = torch.cat([both.real, both.imag], dim=-1).flatten(-2).to(x.dtype)
    return turned


def _matmul_chunked(a: Tensor, b: Tensor) -> Tensors:
    total = torch.zeros(a.shape[0], b.shape[1])
    for start in range(0, a.shape[1], 24):
        total += a[:, start : start + 24].float() @ b[start : start + 24].float()
    return {"y": total.to(a.dtype)}


def _matmul_backwards(a: Tensor, b: Tensor) -> Tensors:
    return {"y": (a.float().flip(1) @ b.float().flip(0)).to(a.dtype)}


def _softmax_in_lanes(x: Tensor) -> Tensors:
    powers = (x - x.amax(-1, keepdim=True)).exp()
    lanes = torch.nn.functional.pad(powers, (0, -powers.shape[-1] % 8))
    total = torch.zeros(x.shape[0], 8)
    for start in range(0, lanes.shape[-1], 8):
        total += lanes[:, start : start + 8]
    return {"y": powers * (1.0 / total.sum(-1, keepdim=True))}


def _softmax_base_two(x: Tensor) -> Tensors:
    powers = ((x - x.amax(-1, keepdim=True)) * 1.4426950408889634).exp2()
    return {"y": powers / powers.sum(-1, keepdim=True)}


def _router_after_selection(logits: Tensor, *, top_k: int) -> Tensors:
    best, ids = logits.topk(top_k, dim=-1)
    return {"weights": torch.softmax(best, dim=-1), "ids": ids.int()}


def _router_other_ties(logits: Tensor, *, top_k: int) -> Tensors:
    chances = torch.softmax(logits, dim=-1).flip(-1)
    best, places = torch.sort(chances, dim=-1, descending=True, stable=True)
    best, ids = best[:, :top_k], logits.shape[-1] - 1 - places[:, :top_k]
    return {"weights": best / best.sum(-1, keepdim=True), "ids": ids.int()}


def _fused_add_unrounded(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float) -> Tensors:
    total = x.float() + residual.float()
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + eps)
    return {"y": (total * scale * weight.float()).to(x.dtype), "residual": total.to(x.dtype)}


def _fused_add_three_roundings(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float
) -> Tensors:
    total = x + residual
    return {**_rms_two_roundings(total, weight, eps=eps), "residual": total}


def _moe_token_by_token(
    x: Tensor, w13: Tensor, w2: Tensor, topk_weights: Tensor, topk_ids: Tensor
) -> Tensors:
    """In float32, rounded once."""
    total = torch.zeros(x.shape)
    for choice in range(topk_ids.shape[1]):
        experts = topk_ids[:, choice].long()
        gate, up = torch.einsum("th,tih->ti", x.float(), w13[experts].float()).chunk(2, dim=-1)
        middle = gate * torch.sigmoid(gate) * up
        share = torch.einsum("ti,thi->th", middle, w2[experts].float())
        total += share * topk_weights[:, choice].unsqueeze(1)
    return {"y": total.to(x.dtype)}


def _decode_in_parts(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, seq_lens: Tensor
) -> Tensors:
    """Parts of 24 keys, bf16 probabilities, joined by their maxima."""
    rows: list[Tensor] = []
    for query, table, count in zip(q, block_table.long(), seq_lens, strict=True):
        length = int(count)
        k, v = (cache[table].flatten(0, 1)[:length].float() for cache in (k_cache, v_cache))
        groups = query.shape[0] // k.shape[1]
        k, v = (each.repeat_interleave(groups, dim=1) for each in (k, v))
        most = torch.full((query.shape[0], 1), -torch.inf)
        total, joined = torch.zeros_like(most), torch.zeros(query.shape)
        for start in range(0, length, 24):
            part = slice(start, start + 24)
            scores = torch.einsum("hd,lhd->hl", query.float(), k[part]) * query.shape[-1] ** -0.5
            higher = torch.maximum(most, scores.amax(-1, keepdim=True))
            powers, fade = (scores - higher).exp(), (most - higher).exp()
            total = total * fade + powers.sum(-1, keepdim=True)
            rounded = powers.to(q.dtype).float()
            joined = joined * fade + torch.einsum("hl,lhd->hd", rounded, v[part])
            most = higher
        rows.append((joined / total).to(q.dtype))
    return {"o": torch.stack(rows)}


def _prefill_token_by_token(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, block_table: Tensor, prefix_lens: Tensor
) -> Tensors:
    """A chunk as as many decode steps."""
    columns = [
        _decode_in_parts(q[:, j], k_cache, v_cache, block_table, prefix_lens + j + 1)["o"]
        for j in range(q.shape[1])
    ]
    return {"o": torch.stack(columns, dim=1)}


def _cache_one_by_one(
    key: Tensor, value: Tensor, slot_mapping: Tensor, key_cache: Tensor, value_cache: Tensor
) -> Tensors:
    """In place, backwards: of tokens that share a slot the first stays."""
    for token in reversed(range(len(slot_mapping))):
        slot = int(slot_mapping[token])
        if slot >= 0:
            key_cache[slot], value_cache[slot] = key[token], value[token]
    return {}


HONEST: Mapping[str, tuple[Compute, ...]] = {
    "fused_add_rms_norm": (_fused_add_unrounded, _fused_add_three_roundings),
    "fused_moe": (_moe_token_by_token,),
    "gqa_paged_decode": (_decode_in_parts,),
    "gqa_paged_prefill": (_prefill_token_by_token,),
    "reshape_and_cache": (_cache_one_by_one,),
    "rms_norm": (_rms_two_roundings, _rms_chunked),
    "silu_and_mul": (_silu_two_roundings, _silu_by_tanh),
    "rotary_embedding": (_rope_complex,),
    "matmul_fp8": (honest_kernels.fp8_as_on_hopper, honest_kernels.fp8_scaled_first),
    "nvfp4_matmul": (honest_kernels.nvfp4_block_by_block,),
    "nvfp4_quantize": (honest_kernels.nvfp4_by_reciprocals,),
    "top_k_top_p_sample": (honest_kernels.sample_row_by_row,),
    "top_k_top_p_sample_seeded": (honest_kernels.sample_by_mersenne,),
    "matmul": (_matmul_chunked, _matmul_backwards),
    "softmax": (_softmax_in_lanes, _softmax_base_two),
    "topk_router": (_router_after_selection, _router_other_ties),
}
