"""A dense Qwen or Llama model in plain torch, with switches that break it in known ways.

Without a fault it computes what transformers does. With one it is a mutant: the fidelity gate must
refuse it before it may pass anything. Needs torch and safetensors only.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor
from torch.nn import functional

When: TypeAlias = Literal["always", "prefill", "decode", "batch", "reuse"]
BLOCK = 16
_SLOT = 24
_WINDOW = 128
_ARCHITECTURES = ("qwen3", "qwen2", "llama")
_SHARED_PREFIX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """How the model computes; the defaults are right."""

    skips_qk_norm: bool = False
    kv_head_modulo: bool = False
    leaks: int = 0
    eps: float | None = None
    gelu: bool = False
    swaps_gate: bool = False
    theta_factor: float = 1.0
    rope_pairs: bool = False
    window: int | None = None
    wrong_slots: Literal["", "once", "each_block", "zero", "foreign"] = ""
    first_unseen: bool = False
    skips_layer: bool = False
    skips_final_norm: bool = False
    logit_factor: float = 1.0
    attention_factor: float = 1.0
    decode_shift: int = 0
    second_best_every: int = 0
    weight_bits: int = 0


HONEST = Switches()
FAULTS: Mapping[str, Switches] = {
    "no_qk_norm": Switches(skips_qk_norm=True),
    "gqa_modulo": Switches(kv_head_modulo=True),
    "leak_one": Switches(leaks=1),
    "eps_1e-3": Switches(eps=1e-3),
    "gelu_for_silu": Switches(gelu=True),
    "gate_swapped": Switches(swaps_gate=True),
    "rope_theta": Switches(theta_factor=0.01),
    "rope_pairs": Switches(rope_pairs=True),
    "cut_128": Switches(window=_WINDOW),
    "kv_slot_once": Switches(wrong_slots="once"),
    "kv_slot_each_block": Switches(wrong_slots="each_block"),
    "kv_block_of_another": Switches(wrong_slots="foreign"),
    "kv_zero_slot": Switches(wrong_slots="zero"),
    "first_token_unseen": Switches(first_unseen=True),
    "layer_skipped": Switches(skips_layer=True),
    "no_final_norm": Switches(skips_final_norm=True),
    "logits_scaled": Switches(logit_factor=1.05),
    "attention_scale": Switches(attention_factor=1.02),
    "decode_plus_one": Switches(decode_shift=1),
    "second_best": Switches(second_best_every=8),
    "int8_weights": Switches(weight_bits=8),
    "int4_weights": Switches(weight_bits=4),
}
"""Each fault of which engines are known to be capable, by name. `kv_zero_slot` (one slot of one
layer) and `attention_scale` (2 %) may be smaller than a low precision's noise."""


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

    @classmethod
    def read(cls, model_dir: Path) -> "Shape":
        """Return the shape of the model in `model_dir`.

        Raises:
            UnknownModel: it is not dense, or its positions are scaled.
        """
        config: dict[str, Any] = json.loads((model_dir / "config.json").read_text("utf-8"))
        rope: dict[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if config["model_type"] not in _ARCHITECTURES or kind != "default":
            raise UnknownModel(f"{config['model_type']} with positions of type {kind}")
        heads = config["num_attention_heads"]
        return cls(
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            eps=config["rms_norm_eps"],
            theta=float(rope.get("rope_theta") or config.get("rope_theta", 10_000.0)),
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

    def __init__(self, model_dir: Path, dtype: torch.dtype = torch.float32) -> None:
        self.shape = Shape.read(model_dir)
        self._weights = {
            name.removeprefix("model."): value.to(dtype)
            for file in sorted(model_dir.glob("*.safetensors"))
            for name, value in load_file(file).items()
        }
        self._rounded: dict[tuple[str, int], Tensor] = {}

    @torch.inference_mode()
    def logprobs(self, ids: Sequence[int], cache: Cache, switches: Switches) -> Tensor:
        """Return float32 rows [tokens, vocabulary]; `ids` follow what `cache` holds."""
        decoding = cache.length > 0
        positions = torch.arange(cache.length, cache.length + len(ids))
        pass_ = _Pass(self, cache, switches, positions, switches.decode_shift if decoding else 0)
        hidden = self.weight("embed_tokens.weight")[torch.tensor(ids)]
        for layer in range(self.shape.layers - switches.skips_layer):
            hidden = pass_.layer(layer, hidden)
        if not switches.skips_final_norm:
            hidden = pass_.norm(hidden, "norm.weight")
        tied = "lm_head.weight" not in self._weights
        head = self.weight("embed_tokens.weight" if tied else "lm_head.weight")
        return ((hidden @ head.T).float() * switches.logit_factor).log_softmax(-1)

    def weight(self, name: str, bits: int = 0) -> Tensor:
        """Return a weight, rounded to `bits` for each output row where that is asked."""
        whole = self._weights[name]
        if not bits:
            return whole
        if (name, bits) not in self._rounded:
            self._rounded[name, bits] = _rounded(whole, bits)
        return self._rounded[name, bits]

    def linear(self, hidden: Tensor, name: str, bits: int) -> Tensor:
        """Return `hidden` through a linear layer."""
        bias = self._weights.get(f"{name}.bias")
        return functional.linear(hidden, self.weight(f"{name}.weight", bits), bias)

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
        return hidden + self._mlp(f"{base}mlp.", normed)

    def norm(self, hidden: Tensor, name: str) -> Tensor:
        wide = hidden.float()
        eps = self.switches.eps or self.model.shape.eps
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return self.model.weight(name) * scaled.to(hidden.dtype)

    def _mlp(self, base: str, hidden: Tensor) -> Tensor:
        bits = self.switches.weight_bits
        gate = self.model.linear(hidden, f"{base}gate_proj", bits)
        up = self.model.linear(hidden, f"{base}up_proj", bits)
        if self.switches.swaps_gate:
            gate, up = up, gate
        active = functional.gelu(gate) if self.switches.gelu else functional.silu(gate)
        return self.model.linear(active * up, f"{base}down_proj", bits)

    def _attention(self, layer: int, hidden: Tensor) -> Tensor:
        base, shape, bits = (
            f"layers.{layer}.self_attn.",
            self.model.shape,
            self.switches.weight_bits,
        )
        query, key, value = (
            self.model.linear(hidden, f"{base}{name}", bits)
            .view(len(hidden), -1, shape.head_dim)
            .transpose(0, 1)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        if self.model.has(f"{base}q_norm.weight") and not self.switches.skips_qk_norm:
            query = self.norm(query, f"{base}q_norm.weight")
            key = self.norm(key, f"{base}k_norm.weight")
        self.cache.extend(layer, self._rotated(key), value)
        mixed = self._mixed(layer, self._rotated(query))
        return self.model.linear(mixed.transpose(0, 1).flatten(1), f"{base}o_proj", bits)

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


def _rounded(weight: Tensor, bits: int) -> Tensor:
    largest = 2 ** (bits - 1) - 1
    scale = weight.float().abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / largest
    return ((weight.float() / scale).round().clamp(-largest, largest) * scale).to(weight.dtype)
