"""compute-sanitizer: where it is, how it is asked, and what its log says.

Its log is a file that the watched process does not write: what device code prints is not in it.
"""

import importlib.util
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

Json: TypeAlias = dict[str, object]
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MISSING = (
    "compute-sanitizer is not on this target; a person installs it: pip install"
    " nvidia-cuda-sanitizer-api, or apt-get install cuda-sanitizer-13-0 from NVIDIA's repository"
)
_USUAL = (
    "/usr/local/cuda/compute-sanitizer/compute-sanitizer",
    "/usr/local/cuda/bin/compute-sanitizer",
)
_OPTIONS: tuple[str, ...] = (
    *("--target-processes", "application-only", "--check-exit-code", "no"),
    *("--show-backtrace", "no", "--print-limit", "20"),
)
# Calls that the driver refuses are ours to read, not the candidate's; what lies beside a tensor is
# no other tensor.
_OF_TOOL = {
    "memcheck": ("--report-api-errors", "no", "--padding", "512"),
    "racecheck": ("--racecheck-detect-level", "error"),
    "initcheck": ("--check-api-memory-access", "no"),
}
_LINE = re.compile(r"^=========(?: (?P<text>.*))?$", re.MULTILINE)
_TOTAL = re.compile(r"^ERROR SUMMARY: (\d+) errors?")
_RACES = re.compile(r"^RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, \d+ warnings?\)")
_UNTOLD = re.compile(
    r"^(?:COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|    |$|WARNING|Warning)"
)
_BROKEN = ("Internal Sanitizer Error", "Device not supported", "Could not connect to target")
_SHOWN = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one tool found; `errors` is None if it did not run to its end, and `why` says why."""

    tool: str
    errors: int | None
    first: str = ""
    why: str = ""

    def to_json(self) -> Json:
        """Return the findings in the form of the evidence."""
        return asdict(self)


def find_sanitizer() -> Path | None:
    """Return it from PATH, else from the toolkit, else from a pip package, else nothing."""
    on_path = shutil.which("compute-sanitizer")
    packages = importlib.util.find_spec("nvidia")
    folders = list(packages.submodule_search_locations or ()) if packages else []
    from_pip = (
        path
        for folder in folders
        for path in Path(folder).glob("*/compute-sanitizer/compute-sanitizer")
    )
    places = [*([Path(on_path)] if on_path else []), *map(Path, _USUAL), *from_pip]
    return next((path for path in places if os.access(path, os.X_OK)), None)


def homes(program: Path) -> tuple[Path, ...]:
    """Return the folders of its parts that a sandbox does not see anyway."""
    found = {program.parent, program.resolve().parent}
    return tuple(sorted(each for each in found if not each.is_relative_to("/usr")))


def watching(program: Path, tool: str, log: Path, argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` under one tool."""
    own = _OF_TOOL.get(tool, ())
    return [str(program), "--tool", tool, *_OPTIONS, *own, "--log-file", str(log), *argv]


def read_log(tool: str, text: str, said: str) -> Findings:
    """Return what a log says; `said` is what else was printed, to explain a log without an end."""
    lines = [match["text"] or "" for match in _LINE.finditer(text)]
    broken = [line for line in lines if any(sign in line for sign in _BROKEN)]
    totals = [found[1] for line in lines if (found := (_RACES.match(line) or _TOTAL.match(line)))]
    if broken or not totals:
        last = said.strip().splitlines()[-1:] or ["its log has no end"]
        return Findings(tool=tool, errors=None, why=(broken or last)[0][:_SHOWN])
    told = [line for line in lines if not _UNTOLD.match(line)]
    first = told[0][:_SHOWN] if told and int(totals[-1]) else ""
    return Findings(tool=tool, errors=int(totals[-1]), first=first)
