import json
from pathlib import Path
from typing import get_args

import pytest

from inferproof.backends import BACKENDS, command, compile, grade, torch_profile
from inferproof.backends.base import Against, Backend, Kind, Work
from inferproof.core.campaign import Limits
from inferproof.core.candidate import Candidate, Manifest
from inferproof.core.contract import KernelContract
from inferproof.core.errors import InfrastructureError
from inferproof.core.evidence import BuildFacts, Evidence
from inferproof.core.sealed import SealedContract
from inferproof.core.values import Purpose, Reason

ZERO = "0" * 64
CONTENTS = {"candidate.yaml": b"", "k.cpp": b"int x;"}
BUILD = BuildFacts(
    language="cpp",
    ok=True,
    code=Reason.ACCEPTED,
    compiler="g++ 12",
    command=(("g++", "k.cpp"),),
    seconds=0.5,
    artefacts={"candidate.so": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"},
    cache_key=ZERO,
)


def candidate(**manifest: object) -> Candidate:
    fields = {"contract": "scale", "language": "cpp", "source": "k.cpp", "entry": "f"} | manifest
    return Candidate(
        digest="1" * 64,
        manifest=Manifest.model_validate(fields),
        files={"candidate.yaml": ZERO, "k.cpp": "2" * 64},
    )


def work(**manifest: object) -> Work:
    return Work(
        job_id="j1",
        wall_s=60,
        candidate=candidate(**manifest),
        contents=CONTENTS,
        limits=Limits(),
    )


def against() -> Against:
    contract = KernelContract.model_validate(
        {
            "kind": "kernel",
            "name": "scale",
            "doc": "Twice x.",
            "dims": {"n": {"min": 1, "max": 64}},
            "inputs": {"x": {"dtype": "f32", "shape": ["n"]}},
            "outputs": {"y": {"dtype": "f32", "shape": ["n"]}},
            "reference": "reference.py:scale",
            "yardstick": "reference.py:scale_f32",
            "baselines": ["torch"],
            "workloads": {
                "practice": [{"n": 8}],
                "graded": {"draw": 2, "from": {"n": "uniform"}},
                "timed": {"ranges": [{"n": [32, 64]}]},
            },
            "inputs_like": ["normal"],
            "tolerance": {"floor": "f32"},
            "mutants": ["zeros"],
            "roofline": {"bytes": "8*n", "flops": "n"},
        }
    )
    sealed = SealedContract(
        contract=contract, digest=ZERO, folder="c", files={"contract.yaml": ZERO}
    )
    return Against(
        sealed=sealed, contents={"contract.yaml": b"c"}, dims_fixed={}, dims_max={"n": 64}
    )


def test_there_is_one_backend_for_each_kind_and_it_fills_a_field_of_evidence():
    assert sorted(backend.kind for backend in BACKENDS) == sorted(get_args(Kind))
    assert {backend.slot for backend in BACKENDS} <= set(Evidence.model_fields)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.kind)
@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b'{"ok": true', b"\xff"])
def test_an_unreadable_result_blames_the_bench(backend: Backend, data: bytes):
    with pytest.raises(InfrastructureError, match=f"the {backend.kind} result of the bench"):
        backend.parse(data)


def test_a_result_is_read_strictly():
    good = BUILD.model_dump(mode="json")
    assert compile.parse(json.dumps(good).encode()) == BUILD
    with pytest.raises(InfrastructureError, match="extra"):
        compile.parse(json.dumps(good | {"extra": 1}).encode())
    with pytest.raises(InfrastructureError, match="seconds"):
        compile.parse(json.dumps(good | {"seconds": float("nan")}).encode())


def test_a_compile_job_carries_the_snapshot_and_nothing_else():
    asked = compile.request(work(), archs=["sm_90a"])
    assert asked.inputs == {"candidate/candidate.yaml": b"", "candidate/k.cpp": b"int x;"}
    assert asked.spec["archs"] == ["sm_90a"]
    json.dumps(asked.spec, allow_nan=False)


def test_a_grade_job_carries_sealed_files_and_names_its_digests():
    order = grade.GradeOrder(
        purpose=Purpose.GRADED, threads=2, arm=True, rounds=28, artefacts={"candidate.so": b"so"}
    )
    asked = grade.request(work(), against(), order)
    assert asked.inputs["contract/contract.yaml"] == b"c"
    assert asked.inputs["build/candidate.so"] == b"so"
    assert asked.spec["build_cache"] == {"candidate.so": "in/build/candidate.so"}
    assert asked.spec["candidate_digest"] == "1" * 64
    assert asked.spec["rounds"] == 28
    assert '"from": {"n": "uniform"}' in json.dumps(asked.spec, allow_nan=False)


def test_a_profile_without_artefacts_asks_for_a_build():
    asked = torch_profile.request(work(), against(), torch_profile.ProfileOrder(threads=1))
    assert asked.verb == "profile"
    assert asked.spec["build_cache"] is None


def test_a_command_is_stopped_before_its_job():
    order = command.CommandOrder(job_id="j1", argv=["true"], timeout_s=5, limits=Limits())
    asked = command.request(order)
    assert asked.wall_s > 5
    assert asked.inputs == {}


def key(subject: Candidate, target: str = "local", remote: str = ZERO) -> str:
    return compile.cache_key(subject, target=target, remote_digest=remote)


def test_the_cache_key_covers_what_decides_a_build_and_only_that():
    base = key(candidate())
    assert key(candidate(note="other words")) == base
    assert key(candidate(contract="other")) == base
    changed = [
        key(candidate(flags=["-O1"])),
        key(candidate(entry="g")),
        key(candidate(prepare="p")),
        key(candidate(), target="elsewhere"),
        key(candidate(), remote="1" * 64),
        key(candidate().model_copy(update={"files": {"k.cpp": "3" * 64}})),
    ]
    assert len({base, *changed}) == 7


def test_a_compiler_is_asked_for_its_version_once_for_each_state_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake, asked = tmp_path / "g++", tmp_path / "asked"
    fake.write_text(f"#!/bin/sh\necho x >> {asked}\necho fake 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert compile.compiler_versions("cpp")[0] == "fake 1\n"
    assert compile.compiler_versions("cpp")[0] == "fake 1\n"
    assert asked.read_text() == "x\n"
    fake.write_text("#!/bin/sh\necho fake 2\n")
    assert compile.compiler_versions("cpp")[0] == "fake 2\n"


@pytest.fixture
def kept(tmp_path: Path) -> compile.CompileCache:
    cache = compile.CompileCache(tmp_path)
    cache.keep("a" * 64, compile.CachedBuild(facts=BUILD, artefacts={"candidate.so": b"foo"}))
    return cache


def test_a_kept_build_is_found_by_its_key_alone(tmp_path: Path, kept: compile.CompileCache):
    found = compile.CompileCache(tmp_path).find("a" * 64)
    assert found == compile.CachedBuild(facts=BUILD, artefacts={"candidate.so": b"foo"})
    assert kept.find("b" * 64) is None


@pytest.mark.parametrize("damage", [b"fo", b"bar", None])
def test_an_altered_build_is_not_found_and_can_be_kept_again(
    tmp_path: Path, kept: compile.CompileCache, damage: bytes | None
):
    file = tmp_path / "cache" / "compile" / ("a" * 64) / "files" / "candidate.so"
    file.unlink() if damage is None else file.write_bytes(damage)
    assert kept.find("a" * 64) is None
    whole = compile.CachedBuild(facts=BUILD, artefacts={"candidate.so": b"foo"})
    kept.keep("a" * 64, whole)
    assert kept.find("a" * 64) == whole


def test_a_failed_build_is_not_kept(tmp_path: Path):
    cache = compile.CompileCache(tmp_path)
    failed = BUILD.model_copy(update={"ok": False, "artefacts": {}})
    cache.keep("a" * 64, compile.CachedBuild(facts=failed, artefacts={}))
    assert cache.find("a" * 64) is None


def test_an_artefact_that_changed_on_its_way_is_refused(tmp_path: Path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "candidate.so").write_bytes(b"evil")
    with pytest.raises(InfrastructureError, match=r"candidate\.so"):
        compile.collect(tmp_path, BUILD)
