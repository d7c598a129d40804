"""What every arm of a measurement gets alike, so that the rest of the machine decides nothing."""

import contextlib
import os
from collections.abc import Generator, Iterable
from pathlib import Path

_NICE = -15
# Real-time levels, the highest runs first: what only carries a candidate, the candidate, its judge.
CARRIER, CANDIDATE, GRADER = 1, 2, 3


def take_priority() -> None:
    """Put this process and all that it will start before ordinary ones, where that is allowed."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    prefer_sessions([os.getpid()])


def prefer_sessions(pids: Iterable[int]) -> None:
    """Put the sessions of these processes before those of ordinary ones, where that is allowed.

    Where Linux shares out the processor by session (autogroup), a process's priority only counts
    within its own session, and every sandbox is a session of its own.
    """
    for pid in pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(_NICE), encoding="ascii")


def hold_processor(task: int, level: int) -> None:
    """Have a thread, but nothing that it starts, not give way to ordinary work, where allowed.

    Priority alone is not enough: who wakes often gives way after one time slice of some 3 ms,
    whatever its weight. The kernel keeps 5 % of each processor for ordinary work.
    """
    with contextlib.suppress(OSError):
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(task, policy, os.sched_param(level))


def give_way(task: int) -> None:
    """Undo `hold_processor`."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(task, os.SCHED_OTHER, os.sched_param(0))


@contextlib.contextmanager
def undisturbed() -> Generator[None]:
    """Have this thread not give way to ordinary work for a while."""
    hold_processor(0, GRADER)
    try:
        yield
    finally:
        give_way(0)


def environment(threads: int) -> dict[str, str]:
    """Return the settings of an arm's thread pools.

    Waiting threads sleep: one that spins while its sandbox is thawed loses its next time slice.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
    }
