"""What this machine lacks to be a bench, and how to get it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from inferproof.core.values import Value

if TYPE_CHECKING:
    from inferproof_remote.sandbox import BenchKind

PROBE_TIMEOUT_S = 60.0
_PROBE = """
import importlib.metadata as m, importlib.util as u, json, pathlib, sysconfig
found = {n: (m.version(n) if u.find_spec(n) else None) for n in ("torch", "numpy")}
header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
print(json.dumps({**found, "Python.h": str(header) if header.is_file() else None}))
"""
_NO_SANDBOX = (
    "let programs make user namespaces (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0; in Docker --security-opt seccomp=unconfined; "
    "inside a chroot nothing helps)"
)


class Check(Value):
    """One thing looked for: found, absent (work goes on without it, worse) or missing."""

    name: str
    state: Literal["found", "absent", "missing"]
    detail: str
    fix: str = ""


def examine(pythons: Mapping[str, str | None]) -> tuple[Check, ...]:
    """Return what was looked for; `pythons` maps a target's name to its interpreter."""
    from inferproof_remote import build_cpp, build_cuda
    from inferproof_remote.sandbox import describe  # tries things out; only when asked

    return (
        _program(
            Check(
                name="C++ compiler",
                state="missing",
                detail="neither cpp candidates nor torch.compile, a baseline, can be built",
                fix="as root: apt-get install g++",
            ),
            build_cpp.find_compiler(),
            "--version",
        ),
        _program(
            Check(
                name="nvcc",
                state="absent",
                detail="cuda candidates cannot be compiled; nothing else needs it",
                fix="as root: apt-get install nvidia-cuda-toolkit; or for newer architectures: "
                "pip install nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime "
                "nvidia-cuda-cccl",
            ),
            build_cuda.find_compiler(),
            "--version",
        ),
        *bench(describe()),
        *_for_engines(),
        *(check for name, python in pythons.items() for check in _python(name, python)),
    )


def _for_engines() -> tuple[Check, Check]:
    from inferproof_remote.serving import balancer, load

    return (
        _program(
            Check(
                name="HAProxy",
                state="absent",
                detail="an engine cannot be deployed as more than one replica",
                fix="as root: apt-get install haproxy",
            ),
            balancer.find_haproxy(),
            "-v",
        ),
        _program(
            Check(
                name="AIPerf",
                state="absent",
                detail="engines cannot be put under load; it wants an environment of its own",
                fix=f"{sys.executable} -m venv {load.OWN_AIPERF}; "
                f"{load.OWN_AIPERF}/bin/pip install aiperf",
            ),
            load.find_aiperf(),
            "--version",
        ),
    )


def bench(kind: "BenchKind") -> tuple[Check, Check]:
    """Return how well a candidate is kept apart and stopped here."""
    sandbox = Check(name="sandbox", state="found", detail=f"{kind.sandbox}, {kind.separation}")
    if kind.separation == "shared-account":
        is_there = shutil.which("bwrap") is not None
        sandbox = Check(
            name="sandbox",
            state="absent",
            detail=f"{kind.sandbox}. Candidates share your account and could read the grader's "
            "memory; every result says shared-account",
            fix=_NO_SANDBOX if is_there else "as root: apt-get install bubblewrap",
        )
    freezer = Check(name="freezer", state="found", detail=kind.freezer)
    if kind.freezer == "sigstop":
        freezer = Check(
            name="freezer",
            state="absent",
            detail="no control group may be made here, so sandboxes are stopped by signals: "
            "half a millisecond a call instead of 20 µs, too coarse for small kernels",
            fix="run as root, or in a group of your own: "
            "systemd-run --user --scope -p Delegate=yes AGENT_HOST",
        )
    return sandbox, freezer


def _program(without: Check, path: Path | None, asked: str) -> Check:
    if path is None:
        return without
    lines = _output([str(path), asked]).splitlines()
    own = (line for line in lines if line.lower().startswith(path.name))
    version = next(own, "".join(lines[:1]))
    return Check(name=without.name, state="found", detail=f"{path}: {version}")


def _python(target: str, python: str | None) -> Iterator[Check]:
    interpreter = python or sys.executable
    name = f"python of target {target}"
    if not Path(interpreter).is_file():
        yield Check(
            name=name,
            state="missing",
            detail=f"{interpreter} does not exist",
            fix="correct `python` in targets.yaml, then seal again",
        )
        return
    fixes = {
        "torch": f"{interpreter} -m pip install torch (the build for CPUs is enough here)",
        "numpy": f"{interpreter} -m pip install numpy",
        "Python.h": "as root: apt-get install python3-dev (torch.compile builds against it)",
    }
    found = _probed(interpreter)
    for what, fix in fixes.items():
        value = found.get(what)
        without = Check(
            name=f"{what} in {name}",
            state="missing",
            detail=f"{interpreter} has none; checks need it",
            fix=fix,
        )
        yield without if value is None else Check(name=without.name, state="found", detail=value)


def _probed(interpreter: str) -> Mapping[str, str | None]:
    try:
        return json.loads(_output([interpreter, "-I", "-c", _PROBE]) or "{}")
    except json.JSONDecodeError:
        return {}


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
