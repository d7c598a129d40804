"""Whose turn it is on this machine: what measures time is alone among the jobs of a work folder.

Others run side by side. Whoever wants to be alone waits at the gate, which nobody who came later
passes, until the floor is empty. Both are kernel locks of the supervisor's, in this order, before
it asks for any GPU: whatever happens to it, they are free, and nobody waits in a circle.
"""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from inferproof_remote import job

_FOLDER = "turns"
_MODE = 0o600
_ALONE = (
    "waits until the other jobs here have ended, deployments too: what is timed runs alone; "
    "job_cancel ends one"
)
_BESIDE = "waits until what is timed here has ended: that runs alone"


def is_timed(verb: str, spec: Mapping[str, object]) -> bool:
    """Return whether a job's times decide, by the clock of this machine's processors.

    A job with GPUs has those alone by its lease, and shares the processors.
    """
    if spec.get("lease") is not None or spec.get("purpose") == "practice":
        return False
    if verb == "grade":
        return spec.get("timing") is True
    stages = spec.get("stages")
    return verb in ("serve", "search") and isinstance(stages, list) and "load" in stages


class Turn:
    """One job's turn: open files, which no other program inherits, until this process ends."""

    def __init__(self, asked: job.JobSpec, job_dir: Path) -> None:
        self._job_dir = job_dir
        self._is_alone = is_timed(asked.verb, asked.spec)
        folder = job_dir.parents[1] / _FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        self._gate, self._floor = (_opened(folder / name) for name in ("gate", "floor"))
        self._is_past_gate = self._is_told = False

    def is_ready(self) -> bool:
        """Take the next step; return whether the job may begin."""
        mode = fcntl.LOCK_EX if self._is_alone else fcntl.LOCK_SH
        self._is_past_gate = self._is_past_gate or _lock(self._gate, mode)
        if self._is_past_gate and _lock(self._floor, mode):
            fcntl.flock(self._gate, fcntl.LOCK_UN)
            return True
        if not self._is_told:
            self._is_told = True
            job.report_progress(self._job_dir, 0, 1, _ALONE if self._is_alone else _BESIDE)
        return False


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)


def _lock(file: int, mode: int) -> bool:
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
