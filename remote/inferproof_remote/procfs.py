"""Facts about processes, read from /proc."""

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

_PROC = Path("/proc")
_STOPPED = frozenset("TtZX")


def threads(pid: int) -> tuple[int, ...]:
    """Return the thread ids of a process; none if it is gone."""
    try:
        return tuple(int(entry.name) for entry in (_PROC / str(pid) / "task").iterdir())
    except OSError:
        return ()


def children(pid: int) -> tuple[int, ...]:
    """Return the direct children of a process."""
    found: list[int] = []
    for thread in threads(pid):
        found.extend(map(int, _read(f"{pid}/task/{thread}/children").split()))
    return tuple(found)


def descendants(root: int) -> frozenset[int]:
    """Return `root` and every process below it; complete only once all of them are stopped."""
    seen = {root}
    waiting = [root]
    while waiting:
        fresh = set(children(waiting.pop())) - seen
        seen |= fresh
        waiting.extend(fresh)
    return frozenset(seen)


def tasks_of(uid: int) -> int:
    """Return how many processes and threads a user has now."""
    count = 0
    for path in _PROC.iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdecimal() and path.stat().st_uid == uid:
                count += len(threads(int(path.name)))
    return count


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process is stopped, dead or gone."""
    return all(_state(pid, thread) in _STOPPED for thread in threads(pid))


def run_ns(pids: Iterable[int]) -> dict[int, int]:
    """Return the time that each of these processes, ended threads included, spent on a CPU."""
    spent: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            spent[pid] = time.clock_gettime_ns(_process_clock(pid))
    return spent


def memory_bytes(pids: Iterable[int]) -> int:
    """Return the anonymous and shared memory of these processes, shared pages counted once."""
    total_kib = 0
    for pid in pids:
        for line in _read(f"{pid}/smaps_rollup").splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total_kib += int(line.split()[1])
    return total_kib * 1024


def _process_clock(pid: int) -> int:
    """Return the clock id of another process, as the C library's clock_getcpuclockid does."""
    return (~pid << 3) | 2


def _state(pid: int, thread: int) -> str:
    return _read(f"{pid}/task/{thread}/stat").rpartition(")")[2].strip()[:1] or "X"


def _read(name: str) -> str:
    try:
        return (_PROC / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
