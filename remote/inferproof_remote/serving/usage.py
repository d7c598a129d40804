"""What a replica uses of its machine: processor time and memory, read from outside of it."""

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from inferproof_remote.fairness import prefer_sessions
from inferproof_remote.sandbox import Sandbox
from inferproof_remote.serving import cores

_TICKS = os.sysconf("SC_CLK_TCK")
_FIRST_WINDOW_S, _WINDOW_S = 0.5, 2.0
_UTIME, _CSTIME = 11, 14  # of a stat line, counted after the name


class Usage:
    """Watches one sandbox; each `look` keeps it on its cores and counts what it has used.

    Of what serves for less than the first window nothing is known.
    """

    def __init__(self, box: Sandbox, held: Sequence[int]) -> None:
        self.cpu_s = 0.0
        self.busiest_cores: float | None = None
        self.peak_bytes = 0
        self._box, self._held = box, held
        self._window: tuple[float, float] | None = None

    def look(self) -> None:
        """Count what has been used so far, once the engine serves."""
        pids = self._box.pids()
        cores.hold(pids, self._held)
        now, self.cpu_s = time.monotonic(), max(self.cpu_s, _cpu_s(pids))
        if self._window is None:
            prefer_sessions(pids)
        began, spent = self._window = self._window or (now, self.cpu_s)
        lasted_s = _FIRST_WINDOW_S if self.busiest_cores is None else _WINDOW_S
        if now - began >= lasted_s:
            busy = (self.cpu_s - spent) / (now - began)
            self.busiest_cores = max(busy, self.busiest_cores or 0.0)
            self.peak_bytes = max(self.peak_bytes, _memory_bytes(pids))
            self._window = (now, self.cpu_s)


def _cpu_s(pids: Iterable[int]) -> float:
    """Return the processor time of these processes and of the children that they have buried."""
    ticks = 0
    for pid in pids:
        fields = _read(f"{pid}/stat").rpartition(")")[2].split()
        ticks += sum(map(int, fields[_UTIME : _CSTIME + 1]))
    return ticks / _TICKS


def _memory_bytes(pids: Iterable[int]) -> int:
    """Return the memory of these processes; what several share is counted once."""
    lines = (line for pid in pids for line in _read(f"{pid}/smaps_rollup").splitlines())
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _read(name: str) -> str:
    try:
        return Path("/proc", name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
