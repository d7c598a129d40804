"""What every arm of a measurement gets alike, so that the rest of the machine decides nothing."""

import contextlib
import os

_NICE = -15


def take_priority() -> None:
    """Put this process and all that it will start before ordinary ones, where that is allowed."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)


def environment(threads: int) -> dict[str, str]:
    """Return the settings of an arm's thread pools.

    Waiting threads sleep: one that spins while its sandbox is thawed loses its next time slice.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "KMP_BLOCKTIME": "0",
    }
