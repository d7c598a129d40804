"""Processes of this machine, read from /proc and signalled without mistaking a reused pid."""

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PPID_FIELD = 1
_START_FIELD = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process; pid and start time together name it for ever."""

    pid: int
    parent: int
    start_ticks: int
    state: str


def find(pid: int) -> Process | None:
    """Return the process that has `pid` now, if any (a zombie counts)."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return Process(
        pid=pid,
        parent=int(fields[_PPID_FIELD]),
        start_ticks=int(fields[_START_FIELD]),
        state=fields[0],
    )


def descendants(roots: Iterable[int]) -> list[Process]:
    """Return every living process below `roots`, the roots left out."""
    children: dict[int, list[Process]] = {}
    for process in _all():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = list(roots)
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += [process.pid for process in below]
    return [process for process in found if process.state != "Z"]


def with_environment(name: str, value: str) -> list[Process]:
    """Return every living process that was started with `name=value`."""
    wanted = f"{name}={value}".encode()
    return [
        process
        for process in _all()
        if process.state != "Z" and wanted in _environment(process.pid)
    ]


def send(process: Process, number: signal.Signals) -> bool:
    """Signal `process`; return whether that very process was there to be signalled."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = find(process.pid)
        if now is None or now.start_ticks != process.start_ticks:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _all() -> list[Process]:
    pids = [int(entry) for entry in os.listdir(_PROC) if entry.isdecimal()]  # noqa: PTH208
    return [process for process in map(find, pids) if process is not None]


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
