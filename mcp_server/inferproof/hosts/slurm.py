"""A cluster's queue as a host: jobs are folders of its login node, launched by Slurm elsewhere."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from inferproof.core.campaign import Target
from inferproof.core.errors import UsageError
from inferproof.hosts.base import JobRequest
from inferproof.hosts.local import Local

if TYPE_CHECKING:
    from inferproof.hosts.ssh import Ssh

_TIMED = ("grade", "profile", "serve", "search")
_ENDING_S = 60.0


def slurm(name: str, target: Target, state_dir: Path) -> "Local | Ssh":
    """Return the host whose jobs wait in Slurm's queue; its login node is this machine, or by SSH.

    Raises:
        UsageError: the target has no work folder.
    """
    queue = partial(options, target)
    if target.address is not None:
        from inferproof.hosts.ssh import Ssh  # paramiko is loaded by the first such target

        return Ssh(name, target, state_dir, queue=queue)
    if target.work is None:
        raise UsageError(f"target {name} has no work folder", hint="give it `work`")
    work = Path(target.work)
    work.mkdir(parents=True, exist_ok=True)
    return Local(work, python=Path(target.python) if target.python else None, queue=queue)


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
