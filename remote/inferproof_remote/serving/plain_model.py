"""A Qwen or Llama model in plain torch, dense or with experts, with switches that break it.

Needs torch and safetensors only.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor
from torch.nn import functional

from inferproof_remote.serving.faults import HONEST, Switches, When
from inferproof_remote.serving.quantised import Way, dequantised

BLOCK = 16
_SLOT = 24
_ARCHITECTURES = ("qwen3", "qwen2", "llama", "qwen3_moe")
_SHARED_PREFIX = 16
_SUM_OF = 16


class UnknownModel(Exception):
    """The model is of no kind that this file computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of a model, from its config.json."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float
    experts: int = 0
    experts_asked: int = 0
    renormalises: bool = True

    @classmethod
    def read(cls, model_dir: Path) -> "Shape":
        """Return the shape of the model in `model_dir`.

        Raises:
            UnknownModel: it is of another kind, or its positions are scaled.
        """
        config: dict[str, Any] = json.loads((model_dir / "config.json").read_text("utf-8"))
        rope: dict[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        is_mixed = config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1
        if config["model_type"] not in _ARCHITECTURES or kind != "default" or is_mixed:
            raise UnknownModel(f"{config['model_type']} with positions of type {kind}")
        heads = config["num_attention_heads"]
        return cls(
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            eps=config["rms_norm_eps"],
            theta=float(rope.get("rope_theta") or config.get("rope_theta", 10_000.0)),
            experts=config.get("num_experts") or config.get("num_local_experts") or 0,
            experts_asked=config.get("num_experts_per_tok", 0),
            renormalises=config.get("norm_topk_prob", True),
        )


@dataclass(slots=True)
class Cache:
    """Keys and values of one sequence, by layer: [kv heads, tokens, head dim]."""

    keys: list[Tensor] = field(default_factory=list[Tensor])
    values: list[Tensor] = field(default_factory=list[Tensor])

    @property
    def length(self) -> int:
        """How many tokens are in it."""
        return self.keys[0].shape[1] if self.keys else 0

    def extend(self, layer: int, key: Tensor, value: Tensor) -> None:
        """Add tokens to one layer."""
        if layer == len(self.keys):
            self.keys.append(key)
            self.values.append(value)
        else:
            self.keys[layer] = torch.cat((self.keys[layer], key), dim=1)
            self.values[layer] = torch.cat((self.values[layer], value), dim=1)


class PlainModel:
    """One forward pass at a time over one sequence."""

    def __init__(
        self, model_dir: Path, dtype: torch.dtype = torch.float32, way: Way = "none"
    ) -> None:
        self.shape = Shape.read(model_dir)
        self._weights = {
            name.removeprefix("model."): _quantised(name, value, way).to(dtype)
            for file in sorted(model_dir.glob("*.safetensors"))
            for name, value in load_file(file).items()
        }
        self._rounded: dict[tuple[str, Way], Tensor] = {}

    @torch.inference_mode()
    def logprobs(self, ids: Sequence[int], cache: Cache, switches: Switches) -> Tensor:
        """Return float32 rows [tokens, vocabulary]; `ids` follow what `cache` holds."""
        decoding = cache.length > 0
        positions = torch.arange(cache.length, cache.length + len(ids))
        shift = switches.shift + (switches.decode_shift if decoding else 0)
        pass_ = _Pass(self, cache, switches, positions, shift)
        hidden = self.weight("embed_tokens.weight")[torch.tensor(ids)]
        for layer in range(self.shape.layers - switches.skips_layer):
            hidden = pass_.layer(layer, hidden)
        if not switches.skips_final_norm:
            hidden = pass_.norm(hidden, "norm.weight")
        tied = "lm_head.weight" not in self._weights
        head = self.weight("embed_tokens.weight" if tied else "lm_head.weight")
        return ((hidden @ head.T).float() * switches.logit_factor).log_softmax(-1)

    def weight(self, name: str, way: Way = "none") -> Tensor:
        """Return a weight, quantised and back where that is asked."""
        whole = self._weights[name]
        if way == "none":
            return whole
        if (name, way) not in self._rounded:
            self._rounded[name, way] = dequantised(whole, way).to(whole.dtype)
        return self._rounded[name, way]

    def linear(self, hidden: Tensor, name: str, switches: Switches) -> Tensor:
        """Return `hidden` through a linear layer."""
        bias = self._weights.get(f"{name}.bias")
        weight = self.weight(f"{name}.weight", switches.weights)
        if not switches.coarse_sums:
            return functional.linear(hidden, weight, bias)
        total = torch.zeros(len(hidden), len(weight), dtype=torch.bfloat16)
        for start in range(0, hidden.shape[1], _SUM_OF):
            part = slice(start, start + _SUM_OF)
            total = (total.float() + hidden[:, part].float() @ weight[:, part].float().T).bfloat16()
        return total.to(hidden.dtype) if bias is None else total.to(hidden.dtype) + bias

    def has(self, name: str) -> bool:
        """Return whether the model has this weight."""
        return name in self._weights

    @cached_property
    def foreign(self) -> Cache:
        """The cache of a sequence that nobody asked for."""
        cache = Cache()
        vocabulary = len(self.weight("embed_tokens.weight"))
        self.logprobs([7919 * at % vocabulary for at in range(2 * BLOCK)], cache, HONEST)
        return cache


def _quantised(name: str, weight: Tensor, way: Way) -> Tensor:
    """Return a linear layer's weight quantised and back, any other as it is."""
    return dequantised(weight, way) if name.endswith("_proj.weight") else weight


@dataclass(frozen=True, slots=True)
class _Pass:
    model: PlainModel
    cache: Cache
    switches: Switches
    positions: Tensor
    shift: int

    def layer(self, layer: int, hidden: Tensor) -> Tensor:
        base = f"layers.{layer}."
        normed = self.norm(hidden, f"{base}input_layernorm.weight")
        hidden = hidden + self._attention(layer, normed)
        normed = self.norm(hidden, f"{base}post_attention_layernorm.weight")
        mixes = self.model.shape.experts > 0
        answered = (
            self._experts(f"{base}mlp.", normed) if mixes else self._mlp(f"{base}mlp.", normed)
        )
        return hidden + answered

    def norm(self, hidden: Tensor, name: str) -> Tensor:
        wide = hidden.float()
        eps = self.switches.eps or self.model.shape.eps
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return self.model.weight(name) * scaled.to(hidden.dtype)

    def _experts(self, base: str, hidden: Tensor) -> Tensor:
        """Return what the likeliest experts of each token answer, by how likely they are."""
        shape, switches = self.model.shape, self.switches
        chances = (hidden @ self.model.weight(f"{base}gate.weight").T).float().softmax(-1)
        best = chances.topk(shape.experts_asked - switches.experts_less)
        shares = best.values
        if shape.renormalises and not switches.router_unnormalised:
            shares = shares / shares.sum(-1, keepdim=True)
        if switches.expert_dropped:
            shares = shares.clone()
            shares[:, switches.expert_dropped - (switches.expert_dropped > 0)] = 0
        mixed = torch.zeros_like(hidden)
        for expert in sorted({int(each) for each in best.indices.flatten()}):
            tokens, ranks = (best.indices == expert).nonzero(as_tuple=True)
            asked = expert ^ 1 if switches.experts_swapped and expert < 2 else expert
            answer = self._mlp(f"{base}experts.{asked}.", hidden[tokens])
            mixed.index_add_(0, tokens, answer * shares[tokens, ranks, None].to(hidden.dtype))
        return mixed

    def _mlp(self, base: str, hidden: Tensor) -> Tensor:
        gate = self.model.linear(hidden, f"{base}gate_proj", self.switches)
        up = self.model.linear(hidden, f"{base}up_proj", self.switches)
        if self.switches.swaps_gate:
            gate, up = up, gate
        active = functional.gelu(gate) if self.switches.gelu else functional.silu(gate)
        return self.model.linear(active * up, f"{base}down_proj", self.switches)

    def _attention(self, layer: int, hidden: Tensor) -> Tensor:
        base, shape = f"layers.{layer}.self_attn.", self.model.shape
        query, key, value = (
            self.model.linear(hidden, f"{base}{name}", self.switches)
            .view(len(hidden), -1, shape.head_dim)
            .transpose(0, 1)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        if self.model.has(f"{base}q_norm.weight") and not self.switches.skips_qk_norm:
            query = self.norm(query, f"{base}q_norm.weight")
            key = self.norm(key, f"{base}k_norm.weight")
        self.cache.extend(layer, self._rotated(key), value)
        mixed = self._mixed(layer, self._rotated(query))
        return self.model.linear(mixed.transpose(0, 1).flatten(1), f"{base}o_proj", self.switches)

    def _rotated(self, heads: Tensor) -> Tensor:
        half = heads.shape[-1] // 2
        theta = self.model.shape.theta * self.switches.theta_factor
        frequencies = theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = (self.positions + self.shift).float()[:, None] * frequencies
        cos, sin = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
        if self.switches.rope_pairs:
            even, odd = heads[..., ::2], heads[..., 1::2]
            pairs = (even * cos - odd * sin, odd * cos + even * sin)
            return torch.stack(pairs, dim=-1).flatten(-2)
        low, high = heads[..., :half], heads[..., half:]
        return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)

    def _mixed(self, layer: int, query: Tensor) -> Tensor:
        key, value = (self._spread(each) for each in self._slots(layer))
        scale = self.switches.attention_factor / math.sqrt(query.shape[-1])
        scores = (query @ key.transpose(1, 2)).float() * scale
        hidden = scores.masked_fill(~self._visible(key.shape[1]), -torch.inf)
        return hidden.softmax(-1).to(value.dtype) @ value

    def _spread(self, heads: Tensor) -> Tensor:
        """Return one head for each query head."""
        group = self.model.shape.heads // self.model.shape.kv_heads
        if self.switches.kv_head_modulo:
            return heads.repeat(group, 1, 1)
        return heads.repeat_interleave(group, dim=0)

    def _visible(self, length: int) -> Tensor:
        at, seen = self.positions[:, None], torch.arange(length)
        visible = seen <= at + self.switches.leaks
        if self.switches.window is not None:
            visible &= seen > at - self.switches.window
        if self.switches.first_unseen:
            visible &= (seen > 0) | (at == 0)
        return visible

    def _slots(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return keys and values as this engine's cache has them."""
        key, value = self.cache.keys[layer], self.cache.values[layer]
        length, kind = key.shape[1], self.switches.wrong_slots
        slots = torch.arange(length)
        if kind == "once" and length > _SLOT:
            slots[_SLOT] -= 1
        if kind == "each_block":
            slots[BLOCK::BLOCK] -= 1
        key, value = key[:, slots], value[:, slots]
        if kind == "zero" and layer == 1 and length > _SLOT:
            key[:, _SLOT], value[:, _SLOT] = 0, 0
        if kind == "foreign" and length >= 2 * BLOCK:
            foreign = self.model.foreign
            key[:, BLOCK : 2 * BLOCK] = foreign.keys[layer][:, BLOCK : 2 * BLOCK]
            value[:, BLOCK : 2 * BLOCK] = foreign.values[layer][:, BLOCK : 2 * BLOCK]
        return key, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One greedy answer: rows about the prompt's tokens after the first, tokens and their rows."""

    prompt_logprobs: Tensor
    ids: tuple[int, ...]
    logprobs: Tensor


class PlainEngine:
    """Answers greedily with a model that is broken always, or only in one phase."""

    def __init__(
        self, model: PlainModel, switches: Switches = HONEST, when: When = "always"
    ) -> None:
        self._model, self._switches, self._when = model, switches, when
        self._starts: set[tuple[int, ...]] = set()

    def generate(self, prompt: Sequence[int], count: int, *, in_flight: int = 1) -> Generated:
        """Return `count` tokens after `prompt`; `in_flight` counts the requests being served."""
        start = tuple(prompt[:_SHARED_PREFIX])
        situations = {"always"} | ({"batch"} if in_flight > 1 else set[str]())
        if len(start) == _SHARED_PREFIX and start in self._starts:
            situations.add("reuse")
        self._starts.add(start)
        cache = Cache()
        rows = self._model.logprobs(prompt, cache, self._in(situations | {"prefill"}))
        decoding = self._in(situations | {"decode"})
        last, ids, found = rows[-1], list[int](), list[Tensor]()
        for index in range(count):
            found.append(last)
            ids.append(self._choose(last, index, decoding))
            if index + 1 < count:
                last = self._model.logprobs(ids[-1:], cache, decoding)[-1]
        return Generated(prompt_logprobs=rows[:-1], ids=tuple(ids), logprobs=torch.stack(found))

    def _in(self, situations: set[str]) -> Switches:
        return self._switches if self._when in situations else HONEST

    @staticmethod
    def _choose(row: Tensor, index: int, switches: Switches) -> int:
        every = switches.second_best_every
        is_second = every > 0 and index % every == every - 1
        return int(row.topk(2).indices[int(is_second)])
