"""A whole grading in real sandboxes: honest kernels pass, wrong ones are told for what they are."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from inferproof.campaign.candidates import CandidateStore
from inferproof.campaign.contracts import load_contract
from inferproof.core.evidence import CallFacts, GradeFacts
from inferproof.core.values import Reason
from inferproof_remote.grade import grade
from shipped_kernels import LIBRARY, read_contract

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]

KERNEL = """
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

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

extern "C" void rms_norm(const uint16_t* x, const uint16_t* weight, uint16_t* y,
                         int64_t tokens, int64_t hidden, float eps) {
  @BEFORE@
  for (int64_t row = 0; row < @ROWS@; ++row) {
    const uint16_t* in = x + row * hidden;
    float sum = 0;
    for (int64_t i = 0; i < hidden; ++i) sum += widen(in[i]) * widen(in[i]);
    const float scale = 1 / std::sqrt(sum / hidden + @EPS@);
    for (int64_t i = 0; i < hidden; ++i)
      y[row * hidden + i] = narrow(widen(in[i]) * scale * widen(weight[i]));
  }
}
"""
HONEST = {"BEFORE": "", "ROWS": "tokens", "EPS": "eps"}
KEEPS_THE_FIRST_OF_A_SHAPE = """
  static std::map<int64_t, std::vector<uint16_t>> kept;
  const size_t size = tokens * hidden;
  if (kept.count(tokens)) { memcpy(y, kept[tokens].data(), size * 2); return; }
  struct Keep {
    uint16_t* y;
    size_t size;
    int64_t tokens;
    ~Keep() { kept[tokens].assign(y, y + size); }
  } keep{y, size, tokens};
"""
ZERO_THE_SECOND_TIME = """
  static std::map<uint64_t, bool> met;
  uint64_t hash = tokens;
  for (int64_t i = 0; i < tokens * hidden; ++i) hash = (hash ^ x[i]) * 1099511628211ull;
  if (met[hash]) { memset(y, 0, tokens * hidden * 2); return; }
  met[hash] = true;
"""
LIMITS = {"memory_mib": 2048, "tmp_mib": 64, "processes": 64, "call_s": 10.0}


def run(
    tmp_path: Path,
    changes: Mapping[str, str] = HONEST,
    *,
    files: Mapping[str, str] | None = None,
    **spec: object,
) -> GradeFacts:
    """Grade a variant of the kernel, or `files`; `spec` overrides the job."""
    source = KERNEL
    for name, text in {**HONEST, **changes}.items():
        source = source.replace(f"@{name}@", text)
    job = tmp_path / "jobs" / "job-1"
    (job / "in" / "candidate").mkdir(parents=True)
    (job / "out").mkdir()
    for name, text in (files or {"kernel.cpp": source}).items():
        (job / "in" / "candidate" / name).write_text(text, encoding="utf-8")
    shutil.copytree(LIBRARY / "rms_norm", job / "in" / "contract")
    asked = _spec(job) | spec
    whole = {"schema": 1, "job_id": "job-1", "verb": "grade", "wall_s": 300, "spec": asked}
    (job / "job.json").write_text(json.dumps(whole), encoding="utf-8")
    return GradeFacts.model_validate_json(json.dumps(grade(job)))


def _spec(job: Path) -> dict[str, object]:
    contract = read_contract("rms_norm").model_dump(mode="json", by_alias=True)
    contract["workloads"]["timed"] = {"ranges": [{"tokens": [200, 400]}], "pairs": 5}
    contract["baselines"] = ["torch"]
    manifest = {"contract": "rms_norm", "language": "cpp", "source": "kernel.cpp"}
    return {
        "purpose": "graded",
        "manifest": {**manifest, "entry": "rms_norm", "prepare": None, "flags": [], "archs": []},
        "candidate_files": _digests(job / "in" / "candidate"),
        "contract": contract,
        "contract_files": _digests(job / "in" / "contract"),
        "dims_fixed": {"hidden": 192},
        "dims_max": {"tokens": 400},
        "limits": LIMITS,
        "threads": 1,
        "arm": False,
        "build_cache": None,
        "timing": False,
        "shapes_scale": "zoo",
    }


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _wrong(facts: GradeFacts) -> list[CallFacts]:
    return [
        call
        for call in facts.calls
        for error in call.outputs.values()
        if error.unwritten or error.nan_mismatches or not (error.rms_ratio or 0) <= 2
    ]


def test_an_honest_kernel_is_right_in_every_call_and_is_timed_beside_its_baseline(tmp_path: Path):
    facts = run(tmp_path, timing=True, arm=True, rounds=6)
    assert facts.build.ok
    assert facts.incidents == ()
    assert _wrong(facts) == []
    assert facts.contract_seen == load_contract(LIBRARY / "rms_norm").digest
    assert {"numerics", "near_duplicate", "repeat", "timed"} == {c.phase for c in facts.calls}
    assert all(call.same_bits for call in facts.calls if call.phase == "repeat")
    (workload,) = facts.timed
    assert len(workload.pairs) == 6  # one more than the contract plans: a later try has more
    assert all(set(pair.baselines_s) == {"torch"} for pair in workload.pairs)
    assert all(0 < pair.null_s < 1 for pair in workload.pairs)
    assert workload.bytes == 2 * (2 * workload.dims["tokens"] * 192 + 192)
    assert facts.ceilings.memory_bytes_per_s
    assert facts.mutants is not None
    assert len(facts.mutants) == len(read_contract("rms_norm").mutants)


def test_a_wrong_kernel_is_told_and_never_timed(tmp_path: Path):
    facts = run(tmp_path, {"EPS": "1e-3f"}, timing=True)
    assert _wrong(facts)
    assert facts.timed == ()
    assert "timed" not in {call.phase for call in facts.calls}
    assert facts.ceilings.memory_bytes_per_s is None


def test_rows_that_were_left_out_are_unwritten(tmp_path: Path):
    facts = run(tmp_path, {"ROWS": "(tokens + 1) / 2"})
    unwritten = [call for call in facts.calls if call.outputs and call.outputs["y"].unwritten]
    assert unwritten
    for call in unwritten:
        assert call.outputs["y"].unwritten == call.dims["tokens"] // 2 * 192


def test_outputs_kept_from_an_earlier_call_are_stale(tmp_path: Path):
    facts = run(tmp_path, {"BEFORE": KEEPS_THE_FIRST_OF_A_SHAPE})
    stale = [
        call for call in facts.calls if call.outputs and call.outputs["y"].stale_of is not None
    ]
    assert stale
    assert facts.incidents == ()
    for call in stale:
        earlier = facts.calls[call.outputs["y"].stale_of or 0]
        assert earlier.index < call.index
        assert earlier.dims == call.dims


def test_wrong_values_in_nothing_but_repeats_are_not_repeatable(tmp_path: Path):
    facts = run(tmp_path, {"BEFORE": ZERO_THE_SECOND_TIME})
    assert {incident.code for incident in facts.incidents} == {Reason.NOT_REPEATABLE}
    assert {call.phase for call in _wrong(facts)} == {"repeat"}


def test_a_crash_ends_the_grading_at_once(tmp_path: Path):
    facts = run(tmp_path, {"BEFORE": "*(volatile int*)nullptr = 1;"}, timing=True)
    assert [incident.code for incident in facts.incidents] == [Reason.CRASHED]
    assert len(facts.calls) == 1
    assert facts.timed == ()


def test_what_does_not_compile_is_never_called(tmp_path: Path):
    facts = run(tmp_path, {"BEFORE": "nonsense"})
    assert facts.build.code is Reason.COMPILE_FAILED
    assert facts.calls == ()


@pytest.mark.parametrize("part", ["candidate", "contract"])
def test_files_that_are_not_as_they_were_sent_are_an_incident(tmp_path: Path, part: str):
    files = {"kernel.cpp": "0" * 64} if part == "candidate" else {"reference.py": "0" * 64}
    facts = run(tmp_path, {}, **{f"{part}_files": files})
    assert [incident.code for incident in facts.incidents] == [Reason.DIGEST_MISMATCH]
    assert facts.calls == ()


def test_the_candidate_seen_is_named_by_the_bytes_that_are_used(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "kernel.cpp").write_text("nonsense", encoding="utf-8")
    manifest = "contract: rms_norm\nlanguage: cpp\nsource: kernel.cpp\nentry: rms_norm\n"
    (folder / "candidate.yaml").write_text(manifest, encoding="utf-8")
    committed = CandidateStore(tmp_path / "state").add(folder)
    sent = {"manifest": committed.manifest.model_dump(mode="json")}
    sent["candidate_files"] = committed.files
    files = {"kernel.cpp": "nonsense", "candidate.yaml": manifest}
    assert run(tmp_path / "same", files=files, **sent).candidate_seen == committed.digest
    other = run(tmp_path / "other", files=files | {"kernel.cpp": "other"}, **sent)
    assert other.candidate_seen != committed.digest
    assert [incident.code for incident in other.incidents] == [Reason.DIGEST_MISMATCH]
    entry = {"manifest": sent["manifest"] | {"entry": "another"}}
    assert run(tmp_path / "entry", files=files, **sent | entry).candidate_seen != committed.digest


def test_practice_asks_for_the_open_shapes(tmp_path: Path):
    facts = run(tmp_path, purpose="practice")
    assert {call.dims["tokens"] for call in facts.calls} == {1, 7, 128, 400}


def test_two_gradings_draw_different_bits(tmp_path: Path):
    first, second = run(tmp_path / "a"), run(tmp_path / "b")
    assert first.bits != second.bits
    assert [call.dims for call in first.calls] != [call.dims for call in second.calls]
