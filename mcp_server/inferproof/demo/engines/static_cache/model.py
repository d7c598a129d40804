"""Qwen3 or Llama in plain torch: fused projections, a static KV cache, prefill alone, decode in a batch."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F


class Layer:
    """One decoder layer's weights, projections fused."""

    def __init__(self, weights, prefix):
        def get(name):
            return weights[f"{prefix}.{name}.weight"].float()

        attention = "self_attn"
        self.qkv = torch.cat([get(f"{attention}.{name}_proj") for name in "qkv"])
        self.out = get(f"{attention}.o_proj")
        self.has_qk_norm = f"{prefix}.{attention}.q_norm.weight" in weights
        if self.has_qk_norm:
            self.q_norm, self.k_norm = get(f"{attention}.q_norm"), get(f"{attention}.k_norm")
        self.gate_up = torch.cat([get("mlp.gate_proj"), get("mlp.up_proj")])
        self.down = get("mlp.down_proj")
        self.norm, self.mlp_norm = get("input_layernorm"), get("post_attention_layernorm")


class Model:
    """The model and its cache of `slots` sequences of at most `length` tokens."""

    def __init__(self, folder: Path, slots: int, length: int):
        config = json.loads((folder / "config.json").read_text())
        weights = load_file(folder / "model.safetensors")
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.dim = config.get("head_dim") or config["hidden_size"] // self.heads
        self.eps, self.slots, self.length = config["rms_norm_eps"], slots, length
        layers = range(config["num_hidden_layers"])
        self.layers = [Layer(weights, f"model.layers.{i}") for i in layers]
        self.embed = weights["model.embed_tokens.weight"].float()
        self.head = weights.get("lm_head.weight", self.embed).float()
        self.norm = weights["model.norm.weight"].float()
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        steps = theta ** (-torch.arange(0, self.dim, 2).float() / self.dim)
        angles = torch.outer(torch.arange(length).float(), steps).repeat(1, 2)
        self.cos, self.sin = angles.cos(), angles.sin()
        shape = (len(self.layers), slots, self.kv_heads, length, self.dim)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)

    @torch.inference_mode()
    def prefill(self, slot: int, ids: list[int]) -> Tensor:
        """Return the logits [tokens, vocabulary] of a prompt, whose keys then lie in `slot`."""
        count = len(ids)
        x = self.embed[torch.tensor(ids)]
        places = torch.arange(count)
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(layer, x, places)
            self.keys[index, slot, :, :count] = k.transpose(0, 1)
            self.values[index, slot, :, :count] = v.transpose(0, 1)
            mixed = F.scaled_dot_product_attention(
                *(each.transpose(0, 1)[None] for each in (q, k, v)), is_causal=True, enable_gqa=True
            )
            x = self._rest(layer, x, mixed[0].transpose(0, 1).reshape(count, -1))
        return F.linear(F.rms_norm(x, x.shape[-1:], self.norm, self.eps), self.head)

    @torch.inference_mode()
    def decode(self, slots: list[int], ids: list[int], places: list[int]) -> Tensor:
        """Return the logits [rows, vocabulary] of one more token in each of `slots`."""
        rows, at = torch.tensor(slots), torch.tensor(places)
        x = self.embed[torch.tensor(ids)]
        seen = max(places) + 1
        mask = (torch.arange(seen)[None] <= at[:, None])[:, None, None]
        for index, layer in enumerate(self.layers):
            q, k, v = self._project(layer, x, at)
            self.keys[index, rows, :, at] = k
            self.values[index, rows, :, at] = v
            keys, values = self.keys[index, rows, :, :seen], self.values[index, rows, :, :seen]
            mixed = F.scaled_dot_product_attention(
                q[:, :, None], keys, values, attn_mask=mask, enable_gqa=True
            )
            x = self._rest(layer, x, mixed.reshape(len(slots), -1))
        return F.linear(F.rms_norm(x, x.shape[-1:], self.norm, self.eps), self.head)

    def _project(self, layer, x, places):
        """Return queries [tokens, heads, dim], keys and values, turned to their positions."""
        normal = F.rms_norm(x, x.shape[-1:], layer.norm, self.eps)
        fused = F.linear(normal, layer.qkv).view(len(x), -1, self.dim)
        q, k, v = fused.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if layer.has_qk_norm:
            q = F.rms_norm(q, q.shape[-1:], layer.q_norm, self.eps)
            k = F.rms_norm(k, k.shape[-1:], layer.k_norm, self.eps)
        return self._turn(q, places), self._turn(k, places), v

    def _turn(self, x, places):
        cos, sin = self.cos[places][:, None], self.sin[places][:, None]
        low, high = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-high, low), dim=-1) * sin

    def _rest(self, layer, x, mixed):
        x = x + F.linear(mixed, layer.out)
        normal = F.rms_norm(x, x.shape[-1:], layer.mlp_norm, self.eps)
        gate, up = F.linear(normal, layer.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, layer.down)
