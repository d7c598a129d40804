"""A cluster's queue as a host: jobs are folders of its login node, launched by Slurm elsewhere."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from inferproof.core.campaign import Target
from inferproof.core.errors import UsageError
from inferproof.hosts.base import JobRequest, Ticket
from inferproof.hosts.local import Local

if TYPE_CHECKING:
    from inferproof.hosts.ssh import Ssh

_TIMED = ("grade", "profile", "serve", "search")
_ENDING_S = 60.0
_KEPT = "queued"


def slurm(name: str, target: Target, state_dir: Path) -> "Local | Ssh":
    """Return the host whose jobs wait in Slurm's queue; its login node is this machine, or by SSH.

    Raises:
        UsageError: the target has no work folder.
    """
    queue = SlurmQueue(target, state_dir / _KEPT)
    if target.address is not None:
        from inferproof.hosts.ssh import Ssh  # paramiko is loaded by the first such target

        return Ssh(name, target, state_dir, queue=queue)
    if target.work is None:
        raise UsageError(f"target {name} has no work folder", hint="give it `work`")
    work = Path(target.work)
    work.mkdir(parents=True, exist_ok=True)
    return Local(work, python=Path(target.python) if target.python else None, queue=queue)


class SlurmQueue:
    """Slurm's queue: a job's ticket lies beside the keeper's key until its outcome is recorded."""

    def __init__(self, target: Target, kept: Path) -> None:
        self._target = target
        self._kept = kept

    def ticket(self, request: JobRequest) -> Ticket:
        """Return what a job is to be queued with, kept for a second start."""
        ticket = Ticket(secret=request.secret, options=tuple(options(self._target, request)))
        self._kept.mkdir(mode=0o700, exist_ok=True)
        data = json.dumps({"secret": ticket.secret, "options": ticket.options})
        place = self._place(request.job_id)
        place.touch(mode=0o600)
        place.write_text(data, encoding="utf-8")
        return ticket

    def kept(self, job_id: str) -> Ticket | None:
        """Return what a job was queued with; None if it needs no second start any more."""
        try:
            return _TICKET.validate_json(self._place(job_id).read_bytes())
        except FileNotFoundError:
            return None

    def forget(self, job_id: str) -> None:
        """Keep a job's ticket no longer."""
        self._place(job_id).unlink(missing_ok=True)

    def _place(self, job_id: str) -> Path:
        return self._kept / f"{job_id}.json"


_TICKET = TypeAdapter(Ticket)


def options(target: Target, request: JobRequest) -> Sequence[str]:
    """Return sbatch's options for a job: what is timed has its node alone, builds need no GPU."""
    asked, builds = target.slurm, request.verb == "compile"
    partition = asked.compile_partition or asked.partition if builds else asked.partition
    minutes = math.ceil((request.wall_s + _ENDING_S) / 60)
    chosen = {
        "--partition": partition,
        "--account": asked.account,
        "--gres": None if builds else asked.gres,
        "--cpus-per-task": str(target.threads) if target.threads else None,
        "--time": str(minutes),
    }
    alone = ["--exclusive"] if asked.exclusive and request.verb in _TIMED else []
    return [*(f"{key}={value}" for key, value in chosen.items() if value), *alone]
