"""What Slurm is told and what its words mean."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from inferproof.core.campaign import Target
from inferproof.core.canonical import Json
from inferproof.core.errors import InfrastructureError, Unreachable
from inferproof.core.values import JobStatus
from inferproof.hosts.base import JobRequest, JobState, Verb
from inferproof.hosts.folders import Answer, Folders
from inferproof.hosts.slurm import SlurmQueue, options
from inferproof_remote.slurm import Standing, read

REQUEST = JobRequest(job_id="one", verb="run", wall_s=90, spec={}, secret="s3cret")
START = {"number": "7", "node": "gpu1\x1b[2J", "ended": "Slurm ended it", "is_fault": True}


class Door:
    """A line to a cluster on which a job's node has failed."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal
        self.asked: list[tuple[str, Mapping[str, Json]]] = []
        self.is_again = False

    def ask(
        self, asked: str, fields: Mapping[str, Json], payload: bytes = b"", *, timeout_s: float
    ) -> Answer:
        del payload, timeout_s
        self.asked.append((asked, fields))
        if asked == "again":
            if self.refusal is not None:
                raise self.refusal
            self.is_again = True
        failed = {"alive": False, "failure": "NODE_FAIL", "is_fault": True, "starts": [START]}
        waits = {"alive": None, "failure": "", "waits": "waits for gpu2", "starts": [START]}
        look = {"rc": None, "age_s": 1.0, "progress": None}
        return Answer({**look, **(waits if self.is_again else failed)} if asked == "look" else {})

    def close(self) -> None:
        pass


def queue_in(folder: Path) -> SlurmQueue:
    entry = {"host": "slurm", "work": "/w", "threads": 4, "slurm": {"partition": "gpu"}}
    return SlurmQueue(Target.model_validate_json(json.dumps(entry)), folder / "queued")


def looked_at(door: Door, folder: Path, *, is_kept: bool = True) -> JobState:
    queue = queue_in(folder)
    if is_kept:
        queue.ticket(REQUEST)
    host = Folders(door, remote_digest="d", queue=queue)
    return asyncio.run(host.state("one"))


def test_who_looks_at_a_job_that_its_machine_ended_has_it_started_again(tmp_path: Path):
    door = Door()
    state = looked_at(door, tmp_path)
    assert state.status is JobStatus.QUEUED
    assert state.progress is not None
    assert state.progress.message == "Slurm ended it; waits for gpu2"
    assert [start.node for start in state.starts] == ["gpu1\\x1b[2J"]
    (fields,) = [fields for asked, fields in door.asked if asked == "again"]
    assert (fields["secret"], fields["job_id"]) == ("s3cret", "one")
    assert fields["queue"] == ["--partition=gpu", "--cpus-per-task=4", "--time=3"]


def test_a_job_that_cannot_be_started_again_is_the_machines_fault(tmp_path: Path):
    state = looked_at(Door(InfrastructureError("no such node")), tmp_path)
    assert state.status is JobStatus.INFRA
    assert "NODE_FAIL; it cannot be started again: no such node" in state.failure
    with pytest.raises(Unreachable):
        looked_at(Door(Unreachable("slurmctld is down")), tmp_path)


def test_a_job_without_a_ticket_is_not_started_again(tmp_path: Path):
    door = Door()
    assert looked_at(door, tmp_path, is_kept=False).status is JobStatus.INFRA
    assert [asked for asked, _ in door.asked] == ["look"]


def test_a_ticket_is_ours_alone_until_the_outcome_is_recorded(tmp_path: Path):
    queue = queue_in(tmp_path)
    ticket = queue.ticket(REQUEST)
    (place,) = (tmp_path / "queued").iterdir()
    assert place.stat().st_mode & 0o077 == place.parent.stat().st_mode & 0o077 == 0
    assert queue_in(tmp_path).kept("one") == ticket
    assert "s3cret" not in repr(ticket)
    asyncio.run(Folders(Door(), remote_digest="d", queue=queue).settle("one"))
    assert queue.kept("one") is None


def told(verb: Verb, **queue: object) -> list[str]:
    entry = {"host": "slurm", "work": "/w", "threads": 4, "slurm": queue}
    target = Target.model_validate_json(json.dumps(entry))
    return list(options(target, JobRequest(job_id="j", verb=verb, wall_s=90, spec={})))


def test_builds_need_no_gpu_and_what_is_timed_has_its_node_alone():
    queue = {"partition": "gpu", "compile_partition": "cpu", "account": "lab", "gres": "gpu:1"}
    common = ["--account=lab", "--cpus-per-task=4", "--time=3"]
    assert set(told("compile", **queue)) == {"--partition=cpu", *common}
    assert set(told("run", **queue)) == {"--partition=gpu", "--gres=gpu:1", *common}
    for verb in ("grade", "profile", "serve"):
        asked = told(verb, **queue)
        assert set(asked) == {"--partition=gpu", "--gres=gpu:1", "--exclusive", *common}
    assert "--exclusive" not in told("grade", exclusive=False)


@pytest.mark.parametrize(
    ("line", "standing"),
    [
        (
            "JobId=7 JobState=PENDING Reason=Resources NodeList=(null)",
            Standing(alive=None, said="waits in Slurm's queue: Resources"),
        ),
        ("JobId=7 JobState=RUNNING NodeList=gpu1", Standing(alive=True, said="on gpu1")),
        ("JobId=7 JobState=COMPLETING NodeList=gpu1", Standing(alive=True, said="on gpu1")),
        (
            "JobId=7 JobState=NODE_FAIL Reason=NodeDown NodeList=gpu2",
            Standing(
                alive=False,
                said="Slurm ended it on gpu2: NODE_FAIL, the machine failed, not the job",
                is_fault=True,
                ill="gpu2",
            ),
        ),
        (
            "JobId=7 JobState=PREEMPTED NodeList=gpu2",
            Standing(
                alive=False,
                said="Slurm ended it on gpu2: PREEMPTED, the machine failed, not the job",
                is_fault=True,
            ),
        ),
        (
            "JobId=7 JobState=CANCELLED Reason=None NodeList=(null)",
            Standing(alive=False, said="Slurm ended it: CANCELLED, reason None"),
        ),
        ("nonsense", Standing(alive=False, said="Slurm ended it: UNKNOWN, reason None")),
    ],
)
def test_a_line_of_scontrol_says_where_a_job_stands(line: str, standing: Standing):
    assert read(line) == standing
