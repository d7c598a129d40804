import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from inferproof.core.canonical import Json
from inferproof.core.errors import NotFound, UsageError
from inferproof.core.machine import Machine
from inferproof.core.values import JobStatus
from inferproof.hosts.base import JobRequest, JobState, Progress, follow
from inferproof.hosts.local import Local
from inferproof.rollout import has_replicas


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "j1"
    folder.mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    return folder


def state(tmp_path: Path) -> JobState:
    return asyncio.run(Local(tmp_path).state("j1"))


def own_start_ticks() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


@pytest.mark.parametrize(
    ("rc", "status"),
    [
        (0, JobStatus.DONE),
        (143, JobStatus.CANCELLED),
        (124, JobStatus.FAILED),
        (70, JobStatus.FAILED),
    ],
)
def test_rc_decides_the_final_state(tmp_path: Path, job: Path, rc: int, status: JobStatus):
    (job / "rc").write_text(f"{rc}\n")
    (job / "failure").write_text("because\n")
    found = state(tmp_path)
    assert (found.status, found.rc) == (status, rc)
    assert found.failure == ("" if rc == 0 else "because")


def test_a_live_supervisor_with_its_start_time_is_running(tmp_path: Path, job: Path):
    (job / "pid").write_text(f"{os.getpid()} {own_start_ticks()} 1\n")
    (job / "progress.json").write_text(json.dumps({"done": 1, "total": 3, "message": "m"}))
    found = state(tmp_path)
    assert found.status is JobStatus.RUNNING
    assert found.progress == Progress(done=1, total=3, message="m")


def test_a_reused_pid_is_lost(tmp_path: Path, job: Path):
    (job / "pid").write_text(f"{os.getpid()} 1 1\n")
    assert state(tmp_path).status is JobStatus.LOST


def test_a_fresh_folder_without_a_supervisor_is_queued_and_an_old_one_lost(
    tmp_path: Path, job: Path
):
    assert state(tmp_path).status is JobStatus.QUEUED
    os.utime(job / "job.json", (1, 1))
    assert state(tmp_path).status is JobStatus.LOST


def test_damaged_progress_is_no_progress(tmp_path: Path, job: Path):
    (job / "pid").write_text(f"{os.getpid()} {own_start_ticks()} 1\n")
    (job / "progress.json").write_text('{"done": "x"}')
    assert state(tmp_path).progress is None


@pytest.mark.parametrize("job_id", ["nothing", "../jobs/j1", "", "j1/.."])
def test_unknown_and_malformed_ids_are_not_found(tmp_path: Path, job: Path, job_id: str):
    with pytest.raises(NotFound):
        asyncio.run(Local(tmp_path).state(job_id))


def test_an_id_is_used_once(tmp_path: Path, job: Path):
    request = JobRequest(job_id="j1", verb="run", wall_s=1, spec={})
    with pytest.raises(UsageError, match="exists already"):
        asyncio.run(Local(tmp_path).start(request))


def test_log_tail_is_the_end_of_the_log(tmp_path: Path, job: Path):
    (job / "log").write_bytes(b"x" * 100 + b"\xffend")
    host = Local(tmp_path)
    assert asyncio.run(host.log_tail("j1", limit_bytes=4)) == "�end"


class Scripted:
    """A host whose job goes through given states."""

    remote_digest = "0" * 64

    def __init__(self, states: list[JobState]) -> None:
        self._states = states

    async def reach(self) -> None:
        raise NotImplementedError

    def machine(self) -> Machine:
        raise NotImplementedError

    async def start(self, request: JobRequest) -> None:
        raise NotImplementedError

    async def state(self, job_id: str) -> JobState:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    async def void(self, job_id: str) -> bool:
        raise NotImplementedError

    async def log_tail(self, job_id: str, *, limit_bytes: int) -> str:
        return ""

    async def log(self, job_id: str, *, offset_bytes: int, limit_bytes: int) -> bytes:
        return b""

    async def settle(self, job_id: str) -> None:
        raise NotImplementedError

    async def cancel(self, job_id: str) -> JobState:
        return self._states[-1]

    async def tell(self, job_id: str, name: str, data: Mapping[str, Json]) -> None:
        raise NotImplementedError

    async def result_dir(self, job_id: str) -> Path:
        return Path()


async def followed(states: list[JobState], wait_s: float) -> list[JobState]:
    return [state async for state in follow(Scripted(states), "j1", wait_s=wait_s)]


def test_follow_yields_each_change_until_the_end():
    running, done = JobState(status=JobStatus.RUNNING), JobState(status=JobStatus.DONE, rc=0)
    seen = asyncio.run(followed([running, running, running, done], 10))
    assert seen == [running, done]


def test_a_job_is_told_something_whole_or_not_at_all(tmp_path: Path, job: Path):
    host = Local(tmp_path)
    asyncio.run(host.tell("j1", "control.json", {"replicas": 3}))
    assert json.loads((job / "control.json").read_text()) == {"replicas": 3}
    assert sorted(path.name for path in job.iterdir()) == ["control.json", "job.json"]
    with pytest.raises(NotFound):
        asyncio.run(host.tell("j2", "control.json", {}))


def test_follow_ends_where_it_is_told_to():
    states = [
        JobState(status=JobStatus.RUNNING, progress=Progress(done=done, total=2, message=""))
        for done in (0, 1, 2, 2)
    ]

    async def scenario() -> list[JobState]:
        until = has_replicas(2)
        host = Scripted(list(states))
        return [state async for state in follow(host, "j1", wait_s=10, until=until)]

    assert asyncio.run(scenario()) == states[:3]


def test_follow_ends_at_its_deadline():
    running = JobState(status=JobStatus.RUNNING)
    assert asyncio.run(followed([running], 0.1)) == [running]
