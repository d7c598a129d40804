"""What a job leaves running when its supervisor is killed, and the end of it."""

import os
import signal
import time

from inferproof_remote import cgroups, job, processes
from inferproof_remote.incidents import BenchError

_PAUSE_S = 0.01


def end_remains(job_id: str, *, patience_s: float, spared: int = 0) -> None:
    """End every process of a job but this one, and `spared`.

    Raises:
        BenchError: something of it cannot be ended.
    """
    deadline = time.monotonic() + patience_s
    while left := _marked(job_id, {os.getpid(), spared}):
        if time.monotonic() > deadline:
            raise BenchError(f"processes of job {job_id} are left that cannot be killed")
        for process in left + processes.descendants(process.pid for process in left):
            processes.send(process, signal.SIGKILL)
        cgroups.cleanup(f"{job_id}.")
        time.sleep(_PAUSE_S)
    cgroups.cleanup(f"{job_id}.")


def _marked(job_id: str, spared: set[int]) -> list[processes.Process]:
    found = processes.with_environment(job.MARK, job_id)
    return [process for process in found if process.pid not in spared]
