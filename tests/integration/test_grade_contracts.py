"""Kernels that work in place or on pages, judged in real sandboxes: what they change is judged."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from inferproof.core.evidence import GradeFacts
from inferproof.core.values import Reason
from inferproof.gates.numerics import judge_call
from inferproof_remote.grade import grade
from low_bit_candidates import FAULTS, SOURCES
from shipped_kernels import LIBRARY, read_contract

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]

NUMBERS = """
#include <cmath>
#include <cstdint>
#include <cstring>
static float widen(uint16_t half) {
  uint32_t bits = uint32_t(half) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static uint16_t narrow(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
"""
FUSED_ADD = (
    NUMBERS
    + """
extern "C" void run(const uint16_t* x, uint16_t* residual, const uint16_t* weight, uint16_t* y,
                    int64_t tokens, int64_t hidden, float eps) {
  for (int64_t row = 0; row < tokens; ++row, x += hidden, residual += hidden, y += hidden) {
    float sum = 0;
    for (int64_t i = 0; i < hidden; ++i) {
      const float total = widen(x[i]) + widen(residual[i]);
      sum += total * total;
    }
    const float scale = 1 / std::sqrt(sum / hidden + eps);
    for (int64_t i = 0; i < hidden; ++i) {
      const float total = widen(x[i]) + widen(residual[i]);
      y[i] = narrow(total * scale * widen(weight[i]));
      residual[i] = narrow(total);
    }
  }
}
"""
)
CACHE = """
#include <cstdint>
#include <cstring>
extern "C" void run(const uint16_t* key, const uint16_t* value, const int64_t* slot_mapping,
                    uint16_t* key_cache, uint16_t* value_cache, int64_t tokens, int64_t slots,
                    int64_t kv_heads, int64_t head_dim) {
  const int64_t row = kv_heads * head_dim;
  for (int64_t i = 0; i < tokens; ++i) {
    int64_t slot = slot_mapping[i];
    if (slot < 0) continue;
    memcpy(key_cache + slot * row, key + i * row, row * 2);
    memcpy(value_cache + slot * row, value + i * row, row * 2);
  }
}
"""
DECODE = """
import torch


def run(q, k_cache, v_cache, block_table, seq_lens, o):
    size = k_cache.shape[1]
    for i, count in enumerate(seq_lens.tolist()):
        pages = block_table[i, : -(-count // size)].long()
        k, v = (cache[pages].flatten(0, 1)[:count].float() for cache in (k_cache, v_cache))
        groups = q.shape[1] // k.shape[1]
        k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
        scores = torch.einsum("hd,lhd->hl", q[i].float(), k) * q.shape[-1] ** -0.5
        o[i] = torch.einsum("hl,lhd->hd", scores.softmax(-1), v)
"""
PREFILL = """
import torch


def run(q, k_cache, v_cache, block_table, prefix_lens, o):
    for i, prefix in enumerate(prefix_lens.tolist()):
        length = prefix + q.shape[1]
        k, v = (cache[block_table[i].long()].flatten(0, 1)[:length].float()
                for cache in (k_cache, v_cache))
        groups = q.shape[2] // k.shape[1]
        k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
        scores = torch.einsum("jhd,lhd->hjl", q[i].float(), k) * q.shape[-1] ** -0.5
        unseen = torch.ones(q.shape[1], length, dtype=torch.bool).triu(prefix + 1)
        powers = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        o[i] = torch.einsum("hjl,lhd->jhd", powers, v)
"""
MOE = """
import torch


def run(x, w13, w2, topk_weights, topk_ids, y):
    total = torch.zeros(x.shape)
    for choice in range(4):
        for expert in topk_ids[:, choice].unique().tolist():
            rows = (topk_ids[:, choice] == expert).nonzero().flatten()
            gate, up = (x[rows].float() @ w13[expert].float().T).chunk(2, -1)
            middle = torch.nn.functional.silu(gate) * up
            share = middle @ w2[expert].float().T
            total[rows] += share * topk_weights[rows, choice, None]
    y.copy_(total)
"""
DIMS = {
    "fused_add_rms_norm": {"hidden": 192},
    "reshape_and_cache": {"slots": 16, "kv_heads": 2, "head_dim": 64},
    "gqa_paged_decode": {"max_pages": 4, "heads": 4, "kv_heads": 2, "head_dim": 32},
    "gqa_paged_prefill": {"max_pages": 3, "heads": 4, "kv_heads": 2, "head_dim": 32},
    "fused_moe": {"experts": 8, "hidden": 96, "inter": 40},
    "nvfp4_quantize": {"hidden": 96},
    "top_k_top_p_sample": {"vocab": 500},
    "top_k_top_p_sample_seeded": {"vocab": 500, "rows": 2},
}


def codes(tmp_path: Path, contract: str, source: str) -> set[Reason]:
    """Return what the numerics gate says of every call of a candidate."""
    job = tmp_path / "jobs" / "job-1"
    name = "kernel.py" if source.lstrip().startswith("import torch") else "kernel.cpp"
    (job / "in" / "candidate").mkdir(parents=True)
    (job / "out").mkdir()
    (job / "in" / "candidate" / name).write_text(source, encoding="utf-8")
    shutil.copytree(LIBRARY / contract, job / "in" / "contract")
    shipped = read_contract(contract)
    manifest: dict[str, object] = {
        "contract": contract,
        "language": "python" if name.endswith(".py") else "cpp",
        "source": name,
        "entry": "run",
        "prepare": None,
        "flags": [],
        "archs": [],
    }
    spec: dict[str, object] = {
        "purpose": "graded",
        "manifest": manifest,
        "candidate_files": _digests(job / "in" / "candidate"),
        "contract": shipped.model_dump(mode="json", by_alias=True),
        "contract_files": _digests(job / "in" / "contract"),
        "dims_fixed": DIMS.get(contract, {}),
        "dims_max": {
            "m": 40,
            "n16": 8,
            "k16": 8,
            "k32": 4,
            "draws": 5000,
            "tokens": 100,
            "batch": 6,
            "pages": 32,
            "chunk": 40,
        },
        "limits": {"memory_mib": 2048, "tmp_mib": 64, "processes": 64, "call_s": 10.0},
        "threads": 1,
        "arm": False,
        "build_cache": None,
        "timing": False,
        "shapes_scale": "zoo",
    }
    whole: dict[str, object] = {
        "schema": 1,
        "job_id": "job-1",
        "verb": "grade",
        "wall_s": 300,
        "spec": spec,
    }
    (job / "job.json").write_text(json.dumps(whole), encoding="utf-8")
    facts = GradeFacts.model_validate_json(json.dumps(grade(job)))
    assert facts.incidents == ()
    assert all({*shipped.outputs, *shipped.mutates} == set(c.outputs) for c in facts.calls)
    return {judge_call(call, shipped) for call in facts.calls}


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("contract", "source"),
    [
        ("fused_add_rms_norm", FUSED_ADD),
        ("reshape_and_cache", CACHE),
        ("gqa_paged_decode", DECODE),
        ("gqa_paged_prefill", PREFILL),
        ("fused_moe", MOE),
    ],
)
def test_honest_kernels_are_right_in_every_call(tmp_path: Path, contract: str, source: str):
    assert codes(tmp_path, contract, source) == {Reason.ACCEPTED}


SMOKE = "nvfp4_quantize"
NARROW = [name if name == SMOKE else pytest.param(name, marks=pytest.mark.zoo) for name in SOURCES]


@pytest.mark.parametrize("contract", NARROW)
def test_honest_kernels_of_narrow_numbers_and_samplers_are_right(tmp_path: Path, contract: str):
    assert codes(tmp_path, contract, SOURCES[contract]) == {Reason.ACCEPTED}


@pytest.mark.parametrize("contract", NARROW)
def test_faults_in_narrow_numbers_and_samplers_are_refused(tmp_path: Path, contract: str):
    found = codes(tmp_path, contract, FAULTS[contract])
    assert found & {Reason.WRONG_VALUES, Reason.STALE_OUTPUT}


@pytest.mark.parametrize(
    ("contract", "source"),
    [
        ("fused_add_rms_norm", FUSED_ADD.replace("residual[i] = narrow(total);", "")),
        ("fused_add_rms_norm", FUSED_ADD.replace("narrow(total);", "narrow(total + total);")),
        ("reshape_and_cache", CACHE.replace("if (slot < 0) continue;", "if (slot < 0) slot = 0;")),
        ("reshape_and_cache", CACHE.replace("value + i * row, row * 2", "value + i * row, row")),
        ("gqa_paged_decode", DECODE.replace("[:count]", "")),
        (
            "gqa_paged_decode",
            DECODE.replace("repeat_interleave(groups, 1)", "repeat(1, groups, 1)"),
        ),
        ("gqa_paged_prefill", PREFILL.replace("triu(prefix + 1)", "triu(prefix + 2)")),
        ("fused_moe", MOE.replace("topk_weights[rows, choice, None]", "1")),
    ],
    ids=[
        *("residual-lost", "added-twice", "padding-stored", "half-a-row", "sees-padding", "heads"),
        *("one-ahead", "unweighted"),
    ],
)
def test_faults_in_what_is_changed_or_read_by_pages_are_refused(
    tmp_path: Path, contract: str, source: str
):
    assert codes(tmp_path, contract, source) & {Reason.WRONG_VALUES, Reason.STALE_OUTPUT}
