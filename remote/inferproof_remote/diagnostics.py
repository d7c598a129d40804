"""What compilers print, as file, line, severity and message, and what ptxas says of each kernel."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Literal

from inferproof_remote.cuda_sass import MachineCode

Severity = Literal["error", "warning", "note"]
MOST_DIAGNOSTICS = 50

_PATTERNS: tuple[re.Pattern[str], ...] = (
    re.compile(  # gcc and clang: FILE:LINE[:COLUMN]: SEVERITY: MESSAGE
        r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? "
        r"(?P<severity>fatal error|error|warning|note): (?P<text>.+)$"
    ),
    re.compile(  # nvcc's front end: FILE(LINE): SEVERITY[ #NUMBER]: MESSAGE
        r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): "
        r"(?:catastrophic )?(?P<severity>error|warning|note|remark)(?: #[\w-]+)?: (?P<text>.+)$"
    ),
    re.compile(  # ptxas on one line of the PTX
        r"^ptxas (?P<file>\S+), line (?P<line>\d+); (?P<severity>error|warning)\s*: (?P<text>.+)$"
    ),
    re.compile(  # the assembler: FILE:LINE: Error: MESSAGE
        r"^(?P<file>[^\s:][^:]*):(?P<line>\d+): (?P<severity>Error|Warning): (?P<text>.+)$"
    ),
    re.compile(  # the linker: FILE:(SECTION): MESSAGE
        r"^(?:\S*ld: )?(?P<file>[^\s:]+):\([^)]*\): (?P<text>undefined reference .+)$"
    ),
    re.compile(  # a driver or linker that names no place
        r"^(?:\S*(?:g\+\+|clang\+\+|nvcc|ptxas|ld|collect2|cc1plus|c\+\+))\s*:? "
        r"(?:internal compiler )?(?P<severity>fatal error|fatal|error)\s*: (?P<text>.+)$"
    ),
)
_RESTATES = re.compile(r"^(?:ld returned \d+ exit status|Ptx assembly aborted due to errors)$")
_MADE_UP_FILE = re.compile(r"^/tmp/")  # the compiler's own intermediate files

_ENTRY = re.compile(r"Compiling entry function '(?P<kernel>[^']+)' for '(?P<arch>[^']+)'")
_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<shared>\d+) bytes smem")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One compiler message; `file` is relative to the snapshot, or empty when none is named."""

    file: str
    line: int | None
    severity: Severity
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """What ptxas reports for one kernel on one architecture; `None` is not reported."""

    arch: str
    kernel: str
    registers: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    shared_bytes: int | None = None
    code: MachineCode | None = None


def parse_diagnostics(text: str, *, snapshot: PurePosixPath) -> tuple[Diagnostic, ...]:
    """Return the messages in `text`, errors first, at most `MOST_DIAGNOSTICS`."""
    found = list(dict.fromkeys(_each(text, snapshot)))
    rank: Mapping[Severity, int] = {"error": 0, "warning": 1, "note": 2}
    found.sort(key=lambda diagnostic: rank[diagnostic.severity])
    return tuple(found[:MOST_DIAGNOSTICS])


def parse_resources(text: str) -> tuple[KernelResources, ...]:
    """Return what `-Xptxas -v` printed in `text`, one value for each kernel, sorted by name."""
    blocks = re.split(r"(?=ptxas info\s*: Compiling entry function)", text)
    return tuple(sorted(filter(None, map(_kernel, blocks)), key=lambda found: found.kernel))


def as_json(value: Diagnostic | KernelResources) -> dict[str, object]:
    """Return `value` as plain JSON."""
    found = asdict(value)
    return {name: _plain(each) if isinstance(each, str) else each for name, each in found.items()}


def _plain(text: str) -> str:
    """Return `text` without what is not seen: control codes and turns of direction."""
    return "".join(mark if mark.isprintable() else " " for mark in text)


def _each(text: str, snapshot: PurePosixPath) -> Iterator[Diagnostic]:
    for line in text.splitlines():
        match = next(filter(None, (pattern.match(line) for pattern in _PATTERNS)), None)
        if match is None or _RESTATES.match(match["text"]):
            continue
        groups = match.groupdict()
        number = groups.get("line")
        file = _relative(groups.get("file") or "", snapshot)
        severity = _severity(groups.get("severity") or "error")
        if severity != "error" and file.startswith("/"):
            continue  # about a system header, which the candidate cannot mend
        yield Diagnostic(
            file=file,
            line=int(number) if number and file else None,
            severity=severity,
            message=match["text"].strip()[:500],
        )


def _relative(file: str, snapshot: PurePosixPath) -> str:
    if _MADE_UP_FILE.match(file) and not PurePosixPath(file).is_relative_to(snapshot):
        return ""
    if not file:
        return ""
    path = PurePosixPath(file)
    return str(path.relative_to(snapshot) if path.is_relative_to(snapshot) else path)


def _severity(word: str) -> Severity:
    match word.lower():
        case "warning":
            return "warning"
        case "note" | "remark":
            return "note"
        case _:
            return "error"


def _kernel(block: str) -> KernelResources | None:
    entry = _ENTRY.search(block)
    if entry is None:
        return None
    spills, registers = _SPILLS.search(block), _REGISTERS.search(block)
    shared = _SHARED.search(block)
    return KernelResources(
        arch=entry["arch"],
        kernel=entry["kernel"],
        registers=int(registers["registers"]) if registers else None,
        spill_store_bytes=int(spills["stores"]) if spills else None,
        spill_load_bytes=int(spills["loads"]) if spills else None,
        shared_bytes=int(shared["shared"]) if shared else (0 if registers else None),
    )
