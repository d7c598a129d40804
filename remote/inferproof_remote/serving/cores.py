"""Which cores engines and the load's client have, so that neither takes the other's time.

Every replica of both arms has as many cores as it may have threads, the same in each round. What
generates load has cores of its own: a client that waits for a core blames the engine.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inferproof_remote import procfs

_CLIENT_OF, _MOST_CLIENT = 4, 8


@dataclass(frozen=True, slots=True)
class Shares:
    """The cores of engines, and those of the client. A single core is both's."""

    engines: tuple[int, ...]
    client: tuple[int, ...]

    def of_replica(self, number: int, threads: int) -> tuple[int, ...]:
        """Return the cores of one replica; replicas share only where there are not enough."""
        count = min(threads, len(self.engines))
        places = range(number * count, (number + 1) * count)
        return tuple(sorted({self.engines[each % len(self.engines)] for each in places}))


def shares(cores: Iterable[int] | None = None) -> Shares:
    """Return how this machine's cores (or these) are shared out."""
    every = tuple(sorted(os.sched_getaffinity(0) if cores is None else cores))
    kept = min(_MOST_CLIENT, max(1, len(every) // _CLIENT_OF))
    return Shares(every[:-kept] or every, every[-kept:])


def hold(pids: Iterable[int], cores: Sequence[int]) -> None:
    """Keep every thread of these processes on `cores`, wherever they have put themselves."""
    wanted = set(cores)
    for thread in (each for pid in pids for each in procfs.threads(pid)):
        with contextlib.suppress(OSError):
            if os.sched_getaffinity(thread) != wanted:
                os.sched_setaffinity(thread, wanted)
