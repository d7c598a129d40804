"""What this machine is: processor, caches and versions, without importing anything heavy."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

from inferproof_remote import benches

_CPU_INFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_COMMANDS = {"gcc": "g++", "clang": "clang++", "nvcc": "nvcc", "bubblewrap": "bwrap"}
_PACKAGES = ("torch", "numpy", "triton")
_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_VERSION_S = 20


def facts(job_dir: Path) -> dict[str, object]:
    """Return the facts of this machine; `job_dir` is where the answer will be left."""
    return {
        "job_id": job_dir.name,
        "cpu_model": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "caches_bytes": caches_bytes(),
        "versions": versions(),
    }


def bench(threads: int) -> dict[str, object]:
    """Return how this machine keeps a candidate apart, and what it is, as the evidence has it."""
    kind = benches.describe()
    return {
        "separation": kind.separation,
        "sandbox": kind.sandbox,
        "freezer": kind.freezer,
        "cpu_model": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "versions": versions(),
    }


def cpu_model() -> str:
    """Return the processor's name as the kernel gives it, else the architecture."""
    try:
        lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def caches_bytes() -> dict[str, int]:
    """Return the size of each cache that core 0 can reach, as `L2`, `L1d`, ..."""
    sizes: dict[str, int] = {}
    for folder in sorted(_CACHES.glob("index*")):
        level, kind, size = (_text(folder / name) for name in ("level", "type", "size"))
        if size[-1:] in _SUFFIXES and size[:-1].isdecimal():
            short = {"Data": "d", "Instruction": "i"}.get(kind, "")
            sizes[f"L{level}{short}"] = int(size[:-1]) * _SUFFIXES[size[-1]]
    return sizes


def versions() -> dict[str, str]:
    """Return the version of each tool that a job may depend on; absent tools are left out."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    for name, command in _COMMANDS.items():
        said = version_line(command)
        if said:
            found[name] = said
    return found


def version_line(command: str) -> str:
    """Return the line of `command --version` that holds a number; empty if it will not say."""
    path = shutil.which(command)
    if path is None:
        return ""
    try:
        said = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    numbered = [line for line in said.stdout.splitlines() if "release" in line] or (
        said.stdout.splitlines()
    )
    return numbered[0].strip()[:200] if numbered else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
