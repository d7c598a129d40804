"""Three ways to stop every process of a sandbox at once, each confirmed before it returns."""

import contextlib
import os
import signal
import time
from typing import Literal, Protocol

from inferproof_remote import procfs
from inferproof_remote.cgroups import Group
from inferproof_remote.incidents import BenchError

FreezerName = Literal["cgroup-v2", "cgroup-v1", "sigstop"]
_CONFIRM_S = 10.0
_PATIENT_SPINS = 2000


class NotFrozen(BenchError):
    """The sandbox did not come to a stop in time."""


class Freezer(Protocol):
    """Stops and continues a sandbox as a whole."""

    name: FreezerName

    def freeze(self) -> None:
        """Stop every process; return only when all are confirmed stopped."""
        ...

    def thaw(self) -> None:
        """Let every process go on."""
        ...

    def close(self) -> None:
        """Let go of open files."""
        ...


class UnifiedFreezer:
    """Control group version 2: about 20 microseconds for both ways."""

    name: FreezerName = "cgroup-v2"

    def __init__(self, group: Group) -> None:
        self._switch = os.open(group.path / "cgroup.freeze", os.O_RDWR)
        self._events = os.open(group.path / "cgroup.events", os.O_RDONLY)

    def freeze(self) -> None:
        os.write(self._switch, b"1")
        _confirm(self._is_frozen)

    def thaw(self) -> None:
        os.write(self._switch, b"0")

    def close(self) -> None:
        os.close(self._switch)
        os.close(self._events)

    def _is_frozen(self) -> bool:
        return b"frozen 1" in os.pread(self._events, 256, 0)


class LegacyFreezer:
    """Control group version 1: about a quarter of a millisecond."""

    name: FreezerName = "cgroup-v1"

    def __init__(self, group: Group) -> None:
        self._state = os.open(group.path / "freezer.state", os.O_RDWR)

    def freeze(self) -> None:
        os.write(self._state, b"FROZEN")
        _confirm(self._is_frozen)

    def thaw(self) -> None:
        os.write(self._state, b"THAWED")

    def close(self) -> None:
        os.close(self._state)

    def _is_frozen(self) -> bool:
        return os.pread(self._state, 16, 0).startswith(b"FROZEN")


class SignalFreezer:
    """SIGSTOP to every process below `root`: about half a millisecond.

    A stopped process can arrange to be continued; whoever uses this also checks that none of
    them ran.
    """

    name: FreezerName = "sigstop"

    def __init__(self, root: int) -> None:
        self._root = root
        self._known: frozenset[int] = frozenset()

    def freeze(self) -> None:
        _send(self._known, signal.SIGSTOP)
        _confirm(self._scan)

    def thaw(self) -> None:
        _send(self._known, signal.SIGCONT)

    def close(self) -> None:
        """Nothing is held open."""

    def _scan(self) -> bool:
        """Stop what is found; true when two scans agree and all of them are stopped."""
        found = procfs.descendants(self._root)
        agreed = found == self._known and all(map(procfs.is_stopped, found))
        if not agreed:
            _send(found, signal.SIGSTOP)
        self._known = found
        return agreed


def _send(pids: frozenset[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


class _Check(Protocol):
    def __call__(self) -> bool: ...


def _confirm(check: _Check) -> None:
    deadline = time.monotonic() + _CONFIRM_S
    spins = 0
    while not check():
        spins += 1
        if spins > _PATIENT_SPINS:
            time.sleep(0.0002)
        if time.monotonic() > deadline:
            raise NotFrozen(f"the sandbox did not stop within {_CONFIRM_S:g} s")
