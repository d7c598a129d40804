"""Doctor: what is missing is named, with a command that brings it; what is there is not."""

from pathlib import Path

import pytest

from inferproof.campaign.templates import shipped_model
from inferproof.cli import main
from inferproof.core.campaign import Target
from inferproof.core.machine import Accelerator, Machine, Tool
from inferproof.doctor import Check, accelerators, clock, disk, examine, sandboxes
from inferproof_remote import build_cpp, build_cuda
from inferproof_remote.serving import balancer, load

GOOD = Machine(
    python="3.11.2",
    executable="/usr/bin/python3",
    packages={},
    headers=None,
    kernel="6",
    cpu_model="x",
    cores=8,
    governor="performance",
    memory_bytes=1 << 36,
    disk_free_bytes=1 << 40,
    separation="container",
    sandbox="bubblewrap 0.8.0",
    freezer="cgroup-v2",
    has_bubblewrap=True,
    tools={"ncu": Tool(path="/opt/ncu", version="2025.3")},
    gpus=(
        Accelerator(
            uuid="GPU-1", name="H200", driver="580", sm_mhz=345, most_sm_mhz=1980, memory_mib=143771
        ),
    ),
    reads_counters=True,
    skew_s=0.001,
)
BARE = GOOD.model_copy(
    update={
        "separation": "shared-account",
        "sandbox": "rlimits only: bubblewrap is not installed",
        "freezer": "sigstop",
        "has_bubblewrap": False,
    }
)


def named(checks: tuple[Check, ...], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def without_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_cpp, "find_compiler", lambda: None)
    monkeypatch.setattr(build_cuda, "find_compiler", lambda: None)


def test_a_compiler_that_checks_need_is_missing_and_one_that_they_do_not_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_compilers(monkeypatch)
    checks = examine({})
    assert (named(checks, "C++ compiler").state, named(checks, "nvcc").state) == (
        "missing",
        "absent",
    )
    assert "apt-get install g++" in named(checks, "C++ compiler").fix
    assert "pip install nvidia-cuda-nvcc" in named(checks, "nvcc").fix


def test_any_compiler_that_a_build_would_use_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clang = tmp_path / "clang++"
    clang.write_text("#!/bin/sh\necho clang++ version 99\n")
    clang.chmod(0o755)
    monkeypatch.setattr(build_cpp, "find_compiler", lambda: clang)
    check = named(examine({}), "C++ compiler")
    assert (check.state, check.detail) == ("found", f"{clang}: clang++ version 99")


def test_what_every_bench_can_do_needs_no_fix() -> None:
    checks = (*sandboxes(GOOD), *accelerators(GOOD), *disk(GOOD), clock(GOOD))
    assert {(check.state, check.fix) for check in checks} == {("found", "")}
    assert "345 of 1980 MHz" in named(checks, "H200").detail


def test_a_weak_sandbox_says_what_it_gives_up_and_how_to_get_a_better_one() -> None:
    sandbox, freezer = sandboxes(BARE)
    assert (sandbox.state, freezer.state) == ("absent", "absent")
    assert "could read the grader's memory" in sandbox.detail
    assert "apt-get install bubblewrap" in sandbox.fix
    assert "as root" in freezer.fix


def test_a_bubblewrap_that_cannot_work_here_is_not_installed_again() -> None:
    sandbox, _ = sandboxes(BARE.model_copy(update={"has_bubblewrap": True}))
    assert "user namespaces" in sandbox.fix
    assert "apt-get" not in sandbox.fix


@pytest.mark.parametrize(
    ("change", "check", "fix"),
    [
        ({"reads_counters": False}, "Nsight Compute", "NVreg_RestrictProfilingToAdminUsers=0"),
        ({"tools": {"ncu": None}}, "Nsight Compute", "install nsight-compute"),
        ({"disk_free_bytes": 1 << 20}, "disk", "make room"),
        ({"governor": "powersave"}, "processor clocks", "cpupower frequency-set -g performance"),
        ({"skew_s": -40.0}, "clock", "apt-get install chrony"),
    ],
)
def test_whatever_a_machine_lacks_has_its_mend(
    change: dict[str, object], check: str, fix: str
) -> None:
    lacking = GOOD.model_copy(update=change)
    checks = (*accelerators(lacking), *disk(lacking), clock(lacking))
    assert named(checks, check).state == "absent"
    assert fix in named(checks, check).fix


def test_a_machine_without_a_gpu_is_not_told_about_profilers() -> None:
    assert list(accelerators(GOOD.model_copy(update={"gpus": (), "reads_counters": None}))) == []


def test_a_targets_python_is_asked_for_what_checks_import(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho \'{"torch": null, "numpy": "2", "Python.h": null}\'\n')
    bare.chmod(0o755)
    pythons = {"bare": str(bare), "own": None, "gone": "/nowhere"}
    checks = examine({name: Target(host="local", python=p) for name, p in pythons.items()})
    states = {check.name: check.state for check in checks if " of target " in check.name}
    assert states == {
        "torch in python of target bare": "missing",
        "numpy in python of target bare": "found",
        "Python.h in python of target bare": "missing",
        "torch in python of target own": "found",
        "numpy in python of target own": "found",
        "Python.h in python of target own": "found",
        "python of target gone": "missing",
    }
    assert f"{bare} -m pip install torch" in named(checks, "torch in python of target bare").fix
    assert "python3-dev" in named(checks, "Python.h in python of target bare").fix
    assert "targets.yaml" in named(checks, "python of target gone").fix


def test_the_command_ends_in_5_and_its_last_line_says_what_to_get(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--campaign", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("checks can run here\n")
    without_compilers(monkeypatch)
    assert main(["doctor", "--campaign", str(tmp_path)]) == 5
    assert capsys.readouterr().out.endswith(
        "checks fail here until these are there: C++ compiler\n"
    )


def test_what_engines_need_is_absent_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "find_aiperf", lambda: None)
    monkeypatch.setattr(balancer, "find_haproxy", lambda: None)
    checks = examine({})
    assert {named(checks, name).state for name in ("AIPerf", "HAProxy")} == {"absent"}
    assert "pip install aiperf" in named(checks, "AIPerf").fix
    assert "apt-get install haproxy" in named(checks, "HAProxy").fix


def test_a_model_is_found_whole_or_told_what_it_lacks(tmp_path: Path) -> None:
    whole = str(shipped_model().folder)
    checks = examine({"here": Target(host="local", models={"tiny": whole, "bare": str(tmp_path)})})
    assert named(checks, "model tiny").state == "found"
    bare = named(checks, "model bare")
    assert (bare.state, bare.detail) == ("missing", f"{tmp_path}: it has no config.json")
