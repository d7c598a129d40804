"""Kernel definitions and workloads in the FlashInfer-Trace form, written for these tests."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from inferproof.core.canonical import Json

Spec: TypeAlias = dict[str, Json]


def _axes(**sizes: int | None) -> dict[str, Json]:
    return {
        name: {"type": "var"} if size is None else {"type": "const", "value": size}
        for name, size in sizes.items()
    }


def _tensor(dtype: str, *shape: str) -> Spec:
    return {"shape": list(shape), "dtype": dtype}


def _scalar(dtype: str) -> Spec:
    return {"shape": None, "dtype": dtype}


RMS_NORM: Spec = {
    "name": "rmsnorm_h4096",
    "op_type": "rmsnorm",
    "description": "Each row over its root mean square,\n times a weight.",
    "tags": ["status:draft"],
    "axes": _axes(rows=None, hidden=4096),
    "inputs": {
        "x": _tensor("bfloat16", "rows", "hidden"),
        "weight": _tensor("bfloat16", "hidden"),
        "eps": _scalar("float32"),
    },
    "outputs": {"y": _tensor("bfloat16", "rows", "hidden")},
    "reference": (
        "import torch\n\n\n"
        "@torch.no_grad()\n"
        "def run(x, weight, eps):\n"
        "    wide = x.to(torch.float32)\n"
        "    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)\n"
        "    return (wide * scale * weight.float()).to(torch.bfloat16)\n"
    ),
}
FUSED_ADD: Spec = {
    "name": "fused_add_rmsnorm_h512",
    "op_type": "rmsnorm",
    "axes": _axes(rows=None, hidden=512),
    "inputs": {
        "x": _tensor("bfloat16", "rows", "hidden"),
        "residual": _tensor("bfloat16", "rows", "hidden"),
        "weight": _tensor("bfloat16", "hidden"),
    },
    "outputs": {
        "y": _tensor("bfloat16", "rows", "hidden"),
        "residual": _tensor("bfloat16", "rows", "hidden"),
    },
    "reference": (
        "import math\nimport torch\nEPS = 1e-6\n\n\n"
        "def run(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor):\n"
        "    rows, hidden = x.shape\n"
        "    assert hidden == 512\n"
        "    total = x.float() + residual.float()\n"
        "    size = total.pow(2).mean(dim=-1, keepdim=True)\n"
        "    y = total / torch.sqrt(size + EPS) * weight.float()\n"
        "    return y.to(x.dtype), total.to(x.dtype)\n"
    ),
}
GEMM: Spec = {
    "name": "gemm_n64_k128",
    "op_type": "gemm",
    "axes": _axes(M=None, N=64, K=128),
    "inputs": {"A": _tensor("float16", "M", "K"), "B": _tensor("float16", "N", "K")},
    "outputs": {"C": _tensor("float16", "M", "N")},
    "reference": "import torch\n\ndef run(A, B):\n    return {'C': A @ B.T}\n",
}
ROPE: Spec = {
    "name": "rope_d64",
    "op_type": "rope",
    "axes": _axes(tokens=None, positions_known=None, width=64, half=32),
    "constraints": ["width == 2 * half"],
    "inputs": {
        "q": _tensor("bfloat16", "tokens", "width"),
        "cos_sin": _tensor("float32", "positions_known", "width"),
        "positions": _tensor("int64", "tokens"),
        "interleaved": _scalar("bool"),
    },
    "outputs": {
        "turned": _tensor("bfloat16", "tokens", "width"),
        "angle": _tensor("float32", "tokens", "half"),
    },
    "reference": (
        "import torch\n\ndef run(q, cos_sin, positions, interleaved):\n"
        "    assert interleaved is False\n"
        "    index = positions.to(torch.int64).reshape(-1)\n"
        "    table = cos_sin.float()\n"
        "    cos, sin = table[index, :].chunk(2, dim=-1)\n"
        "    first, second = q.float().chunk(2, dim=-1)\n"
        "    out = torch.zeros(q.shape)\n"
        "    out[:, :32] = first * cos - second * sin\n"
        "    out[:, 32:] = second * cos + first * sin\n"
        "    return out.to(q.dtype), cos\n"
    ),
}
GATED: Spec = {
    "name": "gated",
    "op_type": "activation",
    "axes": _axes(rows=None, wide=None, inner=None),
    "constraints": ["wide == 2 * inner"],
    "inputs": {"x": _tensor("float32", "rows", "wide")},
    "outputs": {"y": _tensor("float32", "rows", "inner")},
    "reference": (
        "import torch\nfrom torch.nn import functional as F\n\n"
        "def run(x):\n    a, b = x.chunk(2, dim=-1)\n    return F.silu(a) * b\n"
    ),
}
PAGED_DECODE: Spec = {
    "name": "gqa_paged_decode_h8_kv2_d64_ps1",
    "op_type": "gqa_paged",
    "axes": _axes(batch=None, pages=None, len_indptr=None, num_indices=None, h=8, kv=2, d=64),
    "constraints": ["len_indptr == batch + 1", "num_indices == kv_indptr[-1].item()"],
    "inputs": {
        "q": _tensor("bfloat16", "batch", "h", "d"),
        "k_cache": _tensor("bfloat16", "pages", "kv", "d"),
        "v_cache": _tensor("bfloat16", "pages", "kv", "d"),
        "kv_indptr": _tensor("int32", "len_indptr"),
        "kv_indices": _tensor("int32", "num_indices"),
        "sm_scale": _scalar("float32"),
    },
    "outputs": {"output": _tensor("bfloat16", "batch", "h", "d")},
    "reference": (
        "import torch\n\n"
        "def run(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):\n"
        "    out = torch.zeros_like(q)\n"
        "    for i in range(q.shape[0]):\n"
        "        pages = kv_indices[kv_indptr[i] : kv_indptr[i + 1]].long()\n"
        "        k, v = (c[pages].float().repeat_interleave(4, 1) for c in (k_cache, v_cache))\n"
        "        scores = torch.einsum('hd,lhd->hl', q[i].float(), k) * sm_scale\n"
        "        out[i] = torch.einsum('hl,lhd->hd', scores.softmax(-1), v).to(q.dtype)\n"
        "    return out\n"
    ),
}
SAMPLING: Spec = {
    "name": "top_k_sampling_v1000",
    "op_type": "sampling",
    "axes": _axes(batch=None, vocab=1000),
    "inputs": {
        "probs": _tensor("float32", "batch", "vocab"),
        "top_k": _tensor("int32", "batch"),
    },
    "outputs": {"samples": _tensor("int64", "batch")},
    "reference": (
        "import torch\n\ndef run(probs, top_k):\n"
        "    return torch.multinomial(probs, 1).squeeze(-1)\n"
    ),
}
MOE: Spec = {
    "name": "moe_fp8_e8",
    "op_type": "moe",
    "axes": _axes(tokens=None, experts=8, hidden=256),
    "inputs": {
        "x": _tensor("float8_e4m3fn", "tokens", "hidden"),
        "logits": _tensor("float32", "tokens", "experts"),
        "gate": _tensor("float8_e4m3fn", "experts", "hidden", "hidden"),
        "scaling": _scalar("float32"),
    },
    "outputs": {"y": _tensor("bfloat16", "tokens", "hidden")},
    "reference": (
        "import torch\nimport os\n\ndef run(x, logits, gate, scaling):\n"
        "    best = logits.argmax(-1)\n"
        "    return torch.einsum('th,thk->tk', x.float(), gate[best].float()).to(torch.bfloat16)\n"
    ),
}


def trace(definition: Spec, inputs: Spec | None = None, **axes: int) -> Spec:
    """Return a workload line as it stands in the data set."""
    specs = definition["inputs"]
    assert isinstance(specs, dict)
    sources: dict[str, Json] = {name: {"type": "random"} for name in specs} | (inputs or {})
    return {
        "definition": definition["name"],
        "workload": {"uuid": f"w{sum(axes.values())}", "axes": {**axes}, "inputs": sources},
        "solution": None,
        "evaluation": None,
    }


def write(folder: Path, definition: Spec, traces: Sequence[Spec] = ()) -> list[str]:
    """Write the files; return the arguments of `inferproof contracts import` but for --out."""
    path = folder / "definition.json"
    path.write_text(json.dumps(definition, indent=1), encoding="utf-8")
    if not traces:
        return [str(path)]
    lines = folder / "workloads.jsonl"
    lines.write_text("".join(json.dumps(each) + "\n" for each in traces), encoding="utf-8")
    return [str(path), "--workloads", str(lines)]


EPS: Spec = {"eps": {"type": "scalar", "value": 1e-6}}
