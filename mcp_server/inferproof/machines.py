"""The machines of a campaign's targets: the host of each, and what it measures with."""

import asyncio
import contextlib
import importlib.metadata
import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from inferproof.backends import compile
from inferproof.core.campaign import Target
from inferproof.core.canonical import digest_json
from inferproof.core.errors import InferproofError, InfrastructureError, NotFound
from inferproof.core.machine import Machine
from inferproof.core.values import Digest, Entry, JobStatus, utc_now
from inferproof.hosts.base import Host, JobState, Progress
from inferproof.hosts.local import Local

LAUNCH_GRACE_S = 30.0
_TOOL_PACKAGES = ("torch", "numpy")


class Machines:
    """One host for each target, however often it is asked for."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._hosts: dict[str, Host] = {}
        self._measured: dict[str, Machine] = {}

    def host(self, target: Target, name: str) -> Host:
        """Return the host of a target; nothing is connected yet."""
        key = f"{name} {target.model_dump_json()}"
        if key not in self._hosts:
            self._hosts[key] = self._made(target, name)
        return self._hosts[key]

    async def reach(self, target: Target, name: str) -> Machine | None:
        """Return what a target that answers is, measured once; None for this machine.

        Raises:
            InfrastructureError: it cannot be reached, or cannot be worked on.
        """
        await self.host(target, name).reach()
        return await asyncio.to_thread(self.measured, target, name)

    def measured(self, target: Target, name: str) -> Machine | None:
        """Return what a machine elsewhere is, measured once; None for this one.

        What jobs say of the machine they ran on is measured by each of them.
        """
        if target.host == "local":
            return None
        key = f"{name} {target.model_dump_json()}"
        if key not in self._measured:
            self._measured[key] = self.host(target, name).machine()
        return self._measured[key]

    def threads(self, target: Target, name: str) -> int:
        """Return how many threads each arm may use."""
        machine = self.measured(target, name)
        return target.threads or (machine.cores if machine else len(os.sched_getaffinity(0)))

    def compilers(self, target: Target, name: str, language: str) -> Sequence[str]:
        """Return what the compilers for a language say they are."""
        machine = self.measured(target, name)
        return machine.compilers if machine else compile.compiler_versions(language)

    def tools_digest(self, target: Target, name: str) -> Digest:
        """Return one name for all tools that a check on this target depends on."""
        machine = self.measured(target, name)
        packages = machine.installed if machine else _packages(target.python)
        return digest_json(
            {
                "remote": self.host(target, name).remote_digest,
                "packages": list(packages),
                "compilers": list(self.compilers(target, name, "cpp")),
            }
        )

    def _made(self, target: Target, name: str) -> Host:
        if target.host == "ssh":
            from inferproof.hosts.ssh import Ssh  # paramiko is loaded by the first such target

            return Ssh(name, target, self._state_dir)
        if target.host == "slurm":
            from inferproof.hosts.slurm import slurm

            return slurm(name, target, self._state_dir)
        return Local(self._state_dir, python=Path(target.python) if target.python else None)


async def seen(host: Host, job_id: str, attempt: Entry) -> JobState:
    """Return where a job stands; what a dead supervisor left of it is ended.

    What is told to be lost before it began never begins later, unfollowed.

    Raises:
        InferproofError: nobody can say now.
    """
    try:
        state = await host.state(job_id)
    except NotFound:
        if (utc_now() - attempt.at).total_seconds() < LAUNCH_GRACE_S:
            return JobState(status=JobStatus.QUEUED)
        if await host.void(job_id):
            failure = "nothing of it is on the machine: the server died before it started the job"
            return JobState(status=JobStatus.LOST, failure=failure)
        state = await host.state(job_id)
    if state.status in (JobStatus.LOST, JobStatus.INFRA):
        await host.cancel(job_id)
    return state


async def refused(host: Host, job_id: str, error: InfrastructureError) -> JobState:
    """Return the state of a job that a machine would not begin; nothing of it begins later."""
    began = True
    with contextlib.suppress(InfrastructureError):
        began = not await host.void(job_id)
        if began:
            await host.cancel(job_id)
    return JobState(status=JobStatus.INFRA, failure=str(error), began=began)


def out_of_sight(error: InferproofError) -> JobState:
    """Return the state of a job of which nobody can say anything now: it goes on, unseen."""
    progress = Progress(done=0, total=1, message=f"out of sight: {error.what}")
    return JobState(status=JobStatus.RUNNING, progress=progress, failure=str(error))


def troubles_of(states: Mapping[str, JobState]) -> dict[str, str]:
    """Return why open jobs are out of sight, by job."""
    return {job: s.failure for job, s in states.items() if s.failure and not s.status.is_final}


@lru_cache(maxsize=8)
def _packages(python: str | None) -> tuple[str, ...]:
    """Return the versions of the packages that a target's Python measures with."""
    if python is None:
        return tuple(_package(name) for name in _TOOL_PACKAGES)
    script = (
        "import importlib.metadata as m\n"
        f"print([d.metadata['Name'] + d.version for d in m.distributions() "
        f"if d.metadata['Name'] in {_TOOL_PACKAGES}])"
    )
    try:
        said = subprocess.run(
            [python, "-I", "-c", script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return (f"unknown: {error}",)  # the launch of a job fails for the same cause, on record
    return (said.stdout.strip(),)


def _package(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name} absent"
