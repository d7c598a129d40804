"""What this machine lacks to be a bench, and how to get it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from inferproof.core.values import Value

PROBE_TIMEOUT_S = 60.0
_TORCH = (
    "import importlib.metadata as m, importlib.util as u, json;"
    "print(json.dumps({n: (m.version(n) if u.find_spec(n) else None) for n in ('torch', 'numpy')}))"
)


class Check(Value):
    """One thing looked for. `state` is missing only where something asked for cannot work."""

    name: str
    state: Literal["found", "absent", "missing"]
    detail: str
    fix: str = ""


def examine(pythons: Mapping[str, str | None]) -> tuple[Check, ...]:
    """Return what was looked for; `pythons` maps a target's name to its interpreter."""
    return (
        _program("g++", "cpp candidates cannot be compiled", "apt-get install g++", needed=True),
        _program("nvcc", "no compiler for cuda candidates", "install a CUDA toolkit", needed=False),
        *_bench(),
        *(check for name, python in pythons.items() for check in _python(name, python)),
    )


def _program(name: str, without: str, fix: str, *, needed: bool) -> Check:
    path = shutil.which(name)
    if path is None:
        state = "missing" if needed else "absent"
        return Check(name=name, state=state, detail=without, fix=fix)
    done = _output([path, "--version"])
    version = next((line for line in reversed(done.splitlines()) if name in line), "")
    return Check(name=name, state="found", detail=f"{path} {version or done[:80]}".strip())


def _bench() -> Iterator[Check]:
    from inferproof_remote.sandbox import describe  # tries things out; only when asked

    kind = describe()
    if kind.sandbox.startswith("bubblewrap"):
        yield Check(name="sandbox", state="found", detail=kind.sandbox)
    else:
        yield Check(
            name="sandbox",
            state="absent",
            detail=f"only {kind.sandbox}: results say so",
            fix="apt-get install bubblewrap",
        )
    yield Check(name="separation", state="found", detail=kind.separation)
    yield Check(name="freezer", state="found", detail=kind.freezer)


def _python(target: str, python: str | None) -> Iterator[Check]:
    interpreter = python or sys.executable
    name = f"python of target {target}"
    if not Path(interpreter).is_file():
        yield Check(
            name=name,
            state="missing",
            detail=f"{interpreter} does not exist",
            fix="correct `python` in targets.yaml",
        )
        return
    versions: dict[str, str | None]
    try:
        versions = json.loads(_output([interpreter, "-I", "-c", _TORCH]) or "{}")
    except json.JSONDecodeError:
        versions = {}
    for package in ("torch", "numpy"):
        version = versions.get(package)
        if version is None:
            yield Check(
                name=f"{package} in {name}",
                state="missing",
                detail=f"{interpreter} has none; checks need it",
                fix="pip install 'inferproof[local]' into that interpreter",
            )
        else:
            yield Check(name=f"{package} in {name}", state="found", detail=version)


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
