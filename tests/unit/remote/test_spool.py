"""Jobs on their way into a queue, with commands that stand in for Slurm's."""

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from inferproof_remote import door, slurm, spool
from inferproof_remote.jobs import Jobs, Refused

NODE_FAIL = "JobState=NODE_FAIL NodeList=gpu1"


class Queue:
    """A work folder, and a Slurm whose commands say what their files hold."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.program = root / "bench"
        self.program.write_text("the bench")
        digest = hashlib.sha256(b"the bench").hexdigest()
        self.jobs = Jobs(
            root=root / "work",
            python=sys.executable,
            program=self.program,
            program_digest=digest,
        )
        (root / "work" / "jobs").mkdir(parents=True)
        (root / "bin").mkdir()
        for command in ("sbatch", "squeue", "scontrol", "scancel"):
            self.say(command, "")

    def say(self, command: str, text: str, *, shell: str = "") -> None:
        """Have a command answer `text`, after it has done `shell`."""
        log = self.root / command
        path = self.root / "bin" / command
        path.write_text(f'#!/bin/sh\necho "$*" >>{log}\n{shell}\ncat <<EOF\n{text}\nEOF\n')
        path.chmod(0o755)

    def asked(self, command: str) -> list[str]:
        """Return the arguments of each call of a command."""
        log = self.root / command
        return log.read_text().splitlines() if log.exists() else []

    def ask(self, asked: str, fields: Mapping[str, object]) -> Mapping[str, object]:
        return door.answer(self.jobs, asked, fields).body

    def begin(self, job_id: str, *options: str) -> Path:
        spec: dict[str, object] = {"argv": ["true"]}
        job = {"schema": 1, "job_id": job_id, "verb": "run", "wall_s": 9, "spec": spec}
        fields: dict[str, object] = {
            "job": job,
            "secret": "s3cret",
            "inputs": {},
            "queue": list(options),
        }
        self.ask("begin", fields)
        return self.root / "work" / "jobs" / job_id

    def look(self, job_id: str) -> Mapping[str, object]:
        for seen in self.root.glob("work/jobs/*/**/slurm-seen.json"):
            seen.unlink()  # as if nobody had asked for a second
        return self.ask("look", {"job_id": job_id})

    def again(self, job_id: str, *options: str) -> Path:
        fields = {"job_id": job_id, "secret": "s3cret", "queue": list(options)}
        self.ask("again", fields)
        return self.jobs.folder(job_id)


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    made = Queue(tmp_path)
    made.say("sbatch", "7")
    return made


def test_sbatch_inherits_nothing_of_the_servers_environment(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TOKEN", "x")
    monkeypatch.setenv("SBATCH_PARTITION", "other")
    queue.say("sbatch", "7", shell=f"env >{queue.root}/environment")
    queue.begin("one")
    told = (queue.root / "environment").read_text()
    names = {line.partition("=")[0] for line in told.splitlines()}
    assert "PATH" in names
    assert not names & {"TOKEN", "SBATCH_PARTITION"}


def test_a_bench_that_somebody_changed_is_not_handed_over(queue: Queue):
    queue.program.write_text("another")
    with pytest.raises(Refused, match="not what the keeper put there"):
        queue.begin("one")
    assert queue.asked("sbatch") == []


def test_jobs_that_come_together_go_as_one_array_and_each_finds_its_own_folder(queue: Queue):
    queue.say("sbatch", "7", shell=f"cat >{queue.root}/script")
    place = queue.root / "work" / "queue"
    place.mkdir()
    with ThreadPoolExecutor() as pool, (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begun = [pool.submit(queue.begin, f"job{n}", "--time=1") for n in range(3)]
        while len(list(place.glob("*.json"))) < len(begun):
            time.sleep(0.005)
        fcntl.flock(lock, fcntl.LOCK_UN)
        folders = [each.result() for each in begun]
    (call,) = queue.asked("sbatch")
    assert "--array=0-2" in call
    assert "--time=1" in call
    numbers = {(folder / "slurm").read_text() for folder in folders}
    assert numbers == {"7_0", "7_1", "7_2"}
    script = (
        (queue.root / "script").read_text().replace(sys.executable, "printenv INFERPROOF_JOB #")
    )
    for folder in folders:
        index = (folder / "slurm").read_text().removeprefix("7_")
        (folder / "slurm").unlink()
        told = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": index, "SLURMD_NODENAME": "n1"}
        environment = {"PATH": os.environ["PATH"], **told}
        subprocess.run(["sh", "-c", script], env=environment, check=True)
        assert (folder / "log").read_text() == f"{folder.name}\n"
        assert ((folder / "slurm").read_text(), (folder / "node").read_text()) == (
            f"7_{index}",
            "n1",
        )


def test_jobs_with_other_options_and_jobs_that_were_given_up_are_not_taken_along(queue: Queue):
    place = queue.root / "work" / "queue"
    place.mkdir()
    for name, options in (("other", ["--time=2"]), ("gone", ["--time=1"])):
        folder = queue.root / "work" / "jobs" / name
        folder.mkdir()
        (place / f"{name}.json").write_text(json.dumps({"folder": str(folder), "options": options}))
    (queue.root / "work" / "jobs" / "other" / "secret").touch()
    queue.begin("one", "--time=1")
    (call,) = queue.asked("sbatch")
    assert "--array" not in call
    assert [path.name for path in place.glob("*.json")] == ["other.json"]


def test_where_no_arrays_are_taken_jobs_go_singly(queue: Queue):
    queue.say("sbatch", "7", shell='case "$*" in *--array*) echo no arrays >&2; exit 1;; esac')
    place = queue.root / "work" / "queue"
    place.mkdir()
    other = queue.root / "work" / "jobs" / "other"
    other.mkdir()
    (other / "secret").touch()
    (place / "other.json").write_text(json.dumps({"folder": str(other), "options": []}))
    one = queue.begin("one")
    assert (one / "slurm").read_text() == (other / "slurm").read_text() == "7"
    assert len(queue.asked("sbatch")) == 3


def test_a_job_that_is_refused_says_why_and_can_be_begun_again(queue: Queue):
    queue.say("sbatch", "", shell="echo invalid partition >&2; exit 1")
    with pytest.raises(Refused, match="invalid partition") as told:
        queue.begin("one")
    assert told.value.code == "failed"
    queue.say("sbatch", "8")
    assert (queue.begin("one") / "slurm").read_text() == "8"


@pytest.fixture
def silent(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Return a queue whose sbatch did not answer for the job `one`."""
    monkeypatch.setattr(slurm, "_ANSWERS_S", 0.2)
    queue.say("sbatch", "", shell="exec sleep 5")
    with pytest.raises(Refused, match="does not say") as told:
        queue.begin("one")
    assert told.value.code == "unreachable"
    monkeypatch.setattr(slurm, "_ANSWERS_S", 30.0)
    queue.say("sbatch", "8")
    return queue


def test_a_job_that_sbatch_took_in_silence_is_found_by_its_name(silent: Queue):
    silent.say("squeue", "7")
    silent.say("scontrol", "JobState=RUNNING NodeList=gpu1")
    assert silent.look("one")["alive"] is True
    assert "--name=one" in silent.asked("squeue")[0]
    assert silent.asked("scontrol")[0].endswith("job 7")
    silent.begin("one")
    assert len(silent.asked("sbatch")) == 1


def test_a_job_that_never_came_into_the_queue_is_handed_over_once_more_and_cannot_come_late(
    silent: Queue, monkeypatch: pytest.MonkeyPatch
):
    assert "does not show it yet" in str(silent.look("one")["waits"])
    monkeypatch.setattr(spool, "_ARRIVES_S", 0.0)
    found = silent.look("one")
    assert (found["is_fault"], found["failure"]) == (True, "it never came into Slurm's queue")
    second = silent.again("one", "--time=1")
    assert (second / "slurm").read_text() == "8"
    assert not (second.parent / "secret").exists()
    assert "--exclude" not in silent.asked("sbatch")[1]


def test_a_job_whose_node_failed_is_started_once_more_on_another(queue: Queue):
    queue.begin("one")
    queue.say("scontrol", NODE_FAIL)
    second = queue.again("one", "--time=1")
    assert second != queue.root / "work" / "jobs" / "one"
    assert queue.asked("sbatch")[1].split()[-2:] == ["--time=1", "--exclude=gpu1"]
    assert (second / "job.json").read_bytes() == (second.parent / "job.json").read_bytes()
    (second.parent / "rc").write_text("0\n")  # the first one lived on, unseen
    queue.say("scontrol", "JobState=RUNNING NodeList=gpu2")
    found = queue.look("one")
    assert (found["rc"], found["alive"]) == (None, True)
    starts = cast("list[dict[str, object]]", found["starts"])
    assert [start["is_fault"] for start in starts] == [True, False]
    queue.say("scontrol", NODE_FAIL)
    queue.look("one")
    assert queue.again("one") == second
    assert len(queue.asked("sbatch")) == 2


def test_a_job_that_gave_way_may_come_back_to_its_node(queue: Queue):
    queue.begin("one")
    queue.say("scontrol", "JobState=PREEMPTED NodeList=gpu1")
    queue.again("one", "--time=1")
    assert queue.asked("sbatch")[1].endswith("--time=1")


@pytest.mark.parametrize("what", ["cancelled", "running", "own fault"])
def test_nothing_is_started_again_that_was_called_off_runs_or_failed_by_itself(
    queue: Queue, what: str
):
    states = {"running": "JobState=RUNNING NodeList=gpu1", "own fault": "JobState=FAILED"}
    first = queue.begin("one")
    queue.say("scontrol", states.get(what, NODE_FAIL))
    if what == "cancelled":
        queue.ask("stop", {"job_id": "one"})
    assert queue.again("one") == first
    assert len(queue.asked("sbatch")) == 1


def test_a_second_start_that_is_refused_leaves_the_first_as_it_was(queue: Queue):
    first = queue.begin("one")
    queue.say("scontrol", NODE_FAIL)
    queue.say("sbatch", "", shell="echo no such node >&2; exit 1")
    with pytest.raises(Refused, match="no such node"):
        queue.again("one")
    assert queue.jobs.folder("one") == first
    assert queue.look("one")["is_fault"] is True


@pytest.mark.parametrize("asked", ["stop", "sweep"])
def test_a_cancellation_that_slurm_does_not_take_is_told(queue: Queue, asked: str):
    queue.begin("one")
    queue.say("scontrol", "JobState=PENDING Reason=Priority")
    queue.say("scancel", "", shell="echo slurmctld is down >&2; exit 1")
    with pytest.raises(Refused, match="slurmctld is down") as told:
        queue.ask(asked, {"job_id": "one"})
    assert told.value.code == "unreachable"


@pytest.mark.parametrize(
    "words",
    ["echo slurm_load_jobs error: Invalid job id specified >&2", "echo Job 7_4 not found"],
)
def test_a_job_that_slurm_forgot_is_over(queue: Queue, words: str):
    queue.begin("one")
    queue.say("scontrol", "", shell=f"{words}; exit 1")
    found = queue.look("one")
    assert (found["alive"], found["is_fault"]) == (False, False)
    for asked in ("stop", "sweep"):
        queue.ask(asked, {"job_id": "one"})
    assert queue.look("one")["rc"] == 143
