"""A job that was told to be lost stays lost, and a folder that is not there loses no job."""

import asyncio
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from inferproof.core.canonical import Json
from inferproof.core.errors import InfrastructureError, NotFound, Unreachable, UsageError
from inferproof.core.values import Entry, JobStatus
from inferproof.hosts.base import JobRequest
from inferproof.hosts.folders import Answer
from inferproof.hosts.local import Local
from inferproof.hosts.same_work import SameWork
from inferproof.machines import LAUNCH_GRACE_S, refused, seen
from inferproof_remote import supervise, workplace
from inferproof_remote.jobs import Jobs, Refused

REQUEST = JobRequest(job_id="j1", verb="run", wall_s=20, spec={"argv": ["true"]})
ASKED: Mapping[str, Json] = {
    "schema": 1,
    "job_id": "j1",
    "verb": "run",
    "wall_s": 20,
    "spec": {"argv": ["true"]},
}


def attempt(age_s: float) -> Entry:
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    return Entry(seq=0, prev="0" * 64, at=at, body={}, digest="0" * 64, sig="0" * 128)


def test_what_is_lost_before_it_began_never_begins(tmp_path: Path):
    """The request to begin was on its way for too long: nobody would follow what it starts."""
    host = Local(tmp_path)
    state = asyncio.run(seen(host, "j1", attempt(LAUNCH_GRACE_S + 1)))
    assert state.status is JobStatus.LOST
    with pytest.raises(InfrastructureError, match="was given up before it began"):
        asyncio.run(host.start(REQUEST))
    with pytest.raises(NotFound):
        asyncio.run(host.state("j1"))
    assert asyncio.run(host.void("j1")), "safe to repeat"


def test_what_has_just_begun_is_not_lost(tmp_path: Path):
    host = Local(tmp_path)
    (tmp_path / "jobs" / "j1").mkdir(parents=True)
    (tmp_path / "jobs" / "j1" / "job.json").write_text("{}")
    assert not asyncio.run(host.void("j1"))
    state = asyncio.run(seen(host, "j1", attempt(LAUNCH_GRACE_S + 1)))
    assert state.status is JobStatus.QUEUED


def test_a_job_that_may_still_be_on_its_way_is_not_given_up(tmp_path: Path):
    host = Local(tmp_path)
    assert asyncio.run(seen(host, "j1", attempt(0))).status is JobStatus.QUEUED
    assert not (tmp_path / "jobs" / "j1").exists()


@pytest.mark.parametrize("name", ["../x", "", "a/b", "A"])
def test_only_a_job_can_be_given_up(tmp_path: Path, name: str):
    with pytest.raises(UsageError):
        asyncio.run(Local(tmp_path).void(name))


def test_a_folder_without_a_supervisor_is_not_launched_after_it_was_ended(tmp_path: Path):
    program = tmp_path / "program"
    program.write_bytes(b"")
    jobs = Jobs(root=tmp_path, python=sys.executable, program=program, program_digest="")
    with pytest.raises(Refused):  # its folder is made, and no supervisor can be launched
        jobs.begin(ASKED, "secret", {})
    jobs.stop("j1")
    with pytest.raises(Refused, match="was given up before it began"):
        jobs.begin(ASKED, "secret", {})


def test_a_supervisor_that_comes_too_late_begins_nothing(tmp_path: Path):
    folder = tmp_path / "jobs" / "j1"
    program = tmp_path / "program"
    program.write_text("raise SystemExit(open('began', 'w').close())")
    jobs = Jobs(root=tmp_path, python=sys.executable, program=program, program_digest="")
    with pytest.raises(Refused):
        jobs.begin(ASKED, "secret", {})
    jobs.stop("j1")
    assert supervise.launch(folder, program) == 0
    deadline = datetime.now(UTC) + timedelta(seconds=20)
    while not (folder / "rc").exists():
        assert datetime.now(UTC) < deadline
        time.sleep(0.01)
    assert (folder / "rc").read_text() == "143\n"
    assert (folder / "pid").read_text().split()[2] == "0", "a child was started"


def test_a_machine_that_would_not_begin_a_job_begins_it_no_more(tmp_path: Path):
    host, error = Local(tmp_path), InfrastructureError("no")
    state = asyncio.run(refused(host, "j1", error))
    assert (state.status, state.failure, state.began) == (JobStatus.INFRA, "no", False)
    with pytest.raises(InfrastructureError, match="given up"):
        asyncio.run(host.start(REQUEST))


class Mounts:
    """The line to a work folder in whose place there is sometimes another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ask(
        self, asked: str, fields: Mapping[str, Json], payload: bytes = b"", *, timeout_s: float
    ) -> Answer:
        if asked != "ping":
            raise NotFound("no job")
        self.folder.mkdir(exist_ok=True)
        return Answer({"now_s": 1.0, "work_id": workplace.identity(self.folder)})

    def close(self) -> None:
        raise NotImplementedError


def test_a_job_that_is_not_found_in_another_folder_is_out_of_sight_and_not_lost(tmp_path: Path):
    mounts = Mounts(tmp_path / "disk")
    line = SameWork(mounts, tmp_path / "works" / "box", work="/work of target box")
    line.ask("ping", {}, timeout_s=1)
    with pytest.raises(NotFound):
        line.ask("look", {}, timeout_s=1)
    mounts.folder = tmp_path / "empty mount point"
    for asked in ("look", "ping"):
        with pytest.raises(Unreachable, match="/work of target box is not the work folder"):
            line.ask(asked, {}, timeout_s=1)
    mounts.folder = tmp_path / "disk"
    with pytest.raises(NotFound):
        line.ask("look", {}, timeout_s=1)


def test_a_work_folder_has_one_name_whoever_asks_first(tmp_path: Path):
    assert workplace.identity(tmp_path) == workplace.identity(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["work.id"]
    other = tmp_path / "other"
    other.mkdir()
    assert workplace.identity(other) != workplace.identity(tmp_path)
