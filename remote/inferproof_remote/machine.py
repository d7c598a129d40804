"""What this machine has and allows, as a keeper elsewhere must know it before it sends work."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from inferproof_remote import benches, build_cpp, build_cuda, facts, ncu
from inferproof_remote.serving import balancer, load

_PACKAGES = ("torch", "numpy", "triton", "transformers")
_DRIVER_SETTINGS = Path("/proc/driver/nvidia/params")
_ADMINS_ONLY = "RmProfilingAdminOnly: 1"
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
_GPU_FIELDS = ("uuid", "name", "driver_version", "clocks.sm", "clocks.max.sm", "memory.total")
_SAYS_S = 20


def machine(work: Path) -> dict[str, object]:
    """Return what is here; `work` is the folder whose disk jobs will use."""
    kind = benches.describe()
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: _package(name) for name in _PACKAGES},
        "headers": _headers(),
        "kernel": platform.release(),
        "cpu_model": facts.cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "governor": _first_line(_GOVERNOR),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "disk_free_bytes": shutil.disk_usage(work).free,
        "separation": kind.separation,
        "sandbox": kind.sandbox,
        "freezer": kind.freezer,
        "has_bubblewrap": shutil.which("bwrap") is not None,
        "tools": {
            "c++": _tool(build_cpp.find_compiler(), "--version"),
            "nvcc": _tool(build_cuda.find_compiler(), "--version"),
            "ncu": _tool(ncu.find_ncu(), "--version"),
            "haproxy": _tool(balancer.find_haproxy(), "-v"),
            "aiperf": _installed(load.find_aiperf(), "aiperf"),
        },
        "gpus": gpus(),
        "reads_counters": _reads_counters(),
    }


def gpus() -> list[dict[str, object]]:
    """Return the accelerators that the driver's own tool lists; none where there is no tool."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    asked = [f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    found: list[dict[str, object]] = []
    for line in _said([program, *asked]).splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(_GPU_FIELDS):
            uuid, name, driver, *numbers = cells
            now_mhz, most_mhz, memory_mib = (int(n) if n.isdecimal() else None for n in numbers)
            found.append(
                {
                    "uuid": uuid,
                    "name": name,
                    "driver": driver,
                    "sm_mhz": now_mhz,
                    "most_sm_mhz": most_mhz,
                    "memory_mib": memory_mib,
                }
            )
    return found


def _reads_counters() -> bool | None:
    """Whether this account may read a GPU's counters; None where there is no driver."""
    try:
        settings = _DRIVER_SETTINGS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return os.geteuid() == 0 or _ADMINS_ONLY not in settings


def _package(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _headers() -> str | None:
    header = Path(sysconfig.get_path("include"), "Python.h")
    return str(header) if header.is_file() else None


def _tool(path: Path | None, asked: str) -> dict[str, object] | None:
    if path is None:
        return None
    lines = _said([str(path), asked]).splitlines()
    own = (line for line in lines if line.lower().startswith(path.name))
    return {"path": str(path), "version": next(own, "".join(lines[:1]))[:200]}


def _installed(path: Path | None, package: str) -> dict[str, object] | None:
    """Return a program of a Python environment with its package's version, without starting it."""
    if path is None:
        return None
    folders = path.resolve().parent.parent.glob(f"lib/python*/site-packages/{package}-*.dist-info")
    versions = [folder.name.removesuffix(".dist-info").rpartition("-")[2] for folder in folders]
    return {"path": str(path), "version": f"{package} {', '.join(versions) or 'unknown'}"}


def _said(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SAYS_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
