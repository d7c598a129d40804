"""Nsight Compute: where it is, how it is asked, and what its CSV says, by the names of metrics.

Metrics differ between chips and versions. One that is not there is missing, never zero.
"""

import csv
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_HEADER = '"ID",'
_PLACES = (
    "/usr/local/cuda/bin/ncu",
    "/opt/nvidia/nsight-compute/*/ncu",
    "/usr/local/NVIDIA-Nsight-Compute*/ncu",
)
_OPTIONS = (
    *("--config-file", "off", "--profile-from-start", "off", "--clock-control", "none"),
    *("--set", "full", "--force-overwrite"),
)
_AS_CSV = ("--csv", "--page", "raw", "--print-units", "base")
_GB, _TB = 1e9, 1e12
_UNITS: Mapping[str, float] = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "kbyte": 1e3,
    "mbyte": 1e6,
    "gbyte": _GB,
    "kbyte/s": 1e3,
    "mbyte/s": 1e6,
    "gbyte/s": _GB,
    "tbyte/s": _TB,
    "khz": 1e3,
    "mhz": 1e6,
    "ghz": 1e9,
}
_NOT_PERMITTED = (
    "this account may not read the GPU's counters (ERR_NVGPUCTRPERM). A person must allow it:"
    " load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0, or give the container"
    " CAP_PERFMON or CAP_SYS_ADMIN"
)
_TROUBLES: tuple[tuple[str, str], ...] = (
    ("ERR_NVGPUCTRPERM", _NOT_PERMITTED),
    ("permission to access NVIDIA GPU Performance Counters", _NOT_PERMITTED),
    (
        "LibraryNotLoaded",
        "the profiler could not be set up on this machine (LibraryNotLoaded): its counters are not"
        " passed through to virtual machines of this kind; profile on another target",
    ),
    (
        "driver resource was unavailable",
        "another profiler holds the GPU's counters; end it (ncu, nsys, DCGM: dcgmi profile --pause)"
        " and profile again",
    ),
    (
        "rofiling is not supported",
        "this ncu does not know this GPU; install a newer Nsight Compute",
    ),
    (
        "No kernels were profiled",
        "no kernel was found: the launches in the manifest did not run, or not where the profiler"
        " looks; call check_numerics with purpose practice first",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """One profiled launch: metrics by their full names, in base units (ns, bytes, hz, %)."""

    kernel: str
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])

    def first(self, names: Iterable[str]) -> float | None:
        """Return the value of the first of `names` that was measured; None if none was."""
        found = (self.metrics[name] for name in names if name in self.metrics)
        return next(found, None)

    def total(self, names: Iterable[str]) -> float | None:
        """Return the sum of those of `names` that were measured; None if none was."""
        found = [self.metrics[name] for name in names if name in self.metrics]
        return sum(found) if found else None


def find_ncu() -> Path | None:
    """Return ncu from PATH, else the newest of its usual places, else nothing."""
    on_path = shutil.which("ncu")
    root = Path("/")
    usual = (
        path for place in _PLACES for path in sorted(root.glob(place.lstrip("/")), reverse=True)
    )
    places = [*([Path(on_path)] if on_path else []), *usual]
    return next((path for path in places if os.access(path, os.X_OK)), None)


def homes() -> tuple[Path, ...]:
    """Return where parts of ncu may lie that a sandbox does not see anyway."""
    found = find_ncu()
    places = {Path("/opt/nvidia")} if found is None else {Path("/opt/nvidia"), *_around(found)}
    return tuple(sorted(place for place in places if place.is_dir()))


def _around(program: Path) -> set[Path]:
    folders = {program.parent, program.resolve().parent}
    return {each for each in folders if not each.is_relative_to("/usr") and each != Path("/bin")}


def counting(program: Path, report: Path, argv: Sequence[str]) -> list[str]:
    """Return the command that profiles the marked launches of `argv` into `report`."""
    return [str(program), *_OPTIONS, "--export", str(report), *argv]


def printing(program: Path, report: Path) -> list[str]:
    """Return the command that prints every metric of a report as CSV."""
    return [str(program), "--config-file", "off", "--import", str(report), *_AS_CSV]


def parse_raw(text: str) -> tuple[Profiled, ...]:
    """Return the launches of a raw page; whatever else the tool printed is passed over."""
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith(_HEADER)), None)
    if start is None:
        return ()
    rows = list(csv.reader(lines[start:]))
    names, units = rows[0], rows[1] if len(rows) > 1 else []
    return tuple(
        _profiled(names, units, row) for row in rows[2:] if len(row) == len(names) == len(units)
    )


def trouble(text: str) -> str | None:
    """Return what kept the profiler from measuring and what to do about it, if it says so."""
    return next((said for sign, said in _TROUBLES if sign in text), None)


def _profiled(names: Sequence[str], units: Sequence[str], row: Sequence[str]) -> Profiled:
    metrics: dict[str, float] = {}
    for name, unit, cell in zip(names, units, row, strict=True):
        value = _number(cell)
        if value is not None:
            metrics[name] = value * _UNITS.get(unit.lower(), 1.0)
    texts = dict(zip(names, row, strict=True))
    return Profiled(kernel=texts.get("Kernel Name", ""), metrics=metrics)


def _number(cell: str) -> float | None:
    """Return a cell as a number; a range in parentheses, a word or NaN is none."""
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
