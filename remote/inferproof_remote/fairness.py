"""What every arm of a measurement gets alike, so that the rest of the machine decides nothing."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_NICE = -15


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


def environment(threads: int) -> dict[str, str]:
    """Return the settings of an arm's thread pools.

    Waiting threads sleep: one that spins while its sandbox is thawed loses its next time slice.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
    }
