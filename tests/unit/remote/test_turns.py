"""Turns: what is timed runs alone, nobody is passed over, and whatever ends a job frees it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inferproof_remote import job, processes
from inferproof_remote.turns import Turn, is_timed

TIMED: dict[str, object] = {"purpose": "graded", "timing": True}
LAUNCH = (
    "import sys; from pathlib import Path; from inferproof_remote import supervise; "
    "sys.exit(supervise.launch(Path(sys.argv[1]), Path(sys.argv[2])))"
)
# Says that it began, and ends once it is told to.
PROGRAM = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[2])
(folder / "out").mkdir(exist_ok=True)
(folder / "began").touch()
while not (folder / "end").exists():
    time.sleep(0.01)
(folder / "out" / "result.json").write_text("{}")
"""


def until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


class Bench:
    """A work folder and the jobs in it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.folders: list[Path] = []

    def asked(self, *, timed: bool) -> tuple[job.JobSpec, Path]:
        """Return another job and its folder."""
        verb, spec = ("grade", TIMED) if timed else ("run", {})
        job_id = f"turn-{os.getpid()}-{len(self.folders)}-{self._root.name[-20:].strip('-_')}"
        job_id = job_id.lower().replace("_", "-")
        folder = self._root / "jobs" / job_id
        folder.mkdir(parents=True)
        self.folders.append(folder)
        body = {"schema": 1, "job_id": job_id, "verb": verb, "wall_s": 60.0, "spec": spec}
        (folder / "job.json").write_text(json.dumps(body))
        return job.parse_job(body), folder

    def turn(self, *, timed: bool = False) -> Turn:
        """Return the turn of another job."""
        return Turn(*self.asked(timed=timed))

    def launched(self, *, timed: bool = False) -> Path:
        """Return the folder of another job, whose supervisor is there."""
        _, folder = self.asked(timed=timed)
        program = folder / "program.py"
        program.write_text(PROGRAM)
        argv = [sys.executable, "-c", LAUNCH, str(folder), str(program)]
        subprocess.run(argv, check=True, timeout=30)
        return folder


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for folder in made.folders:
        for process in processes.with_environment("INFERPROOF_JOB", folder.name):
            processes.send(process, signal.SIGKILL)


def supervisor(folder: Path) -> int:
    return int((folder / "pid").read_text().split()[0])


def waits(folder: Path) -> bool:
    """Whether a job says what it waits for, and has not begun."""
    told = folder / "progress.json"
    return told.exists() and "runs alone" in told.read_text() and not (folder / "began").exists()


def test_jobs_that_are_not_timed_run_side_by_side(bench: Bench) -> None:
    assert all(bench.turn().is_ready() for _ in range(3))


def test_a_timed_job_that_nobody_disturbs_begins_at_once(bench: Bench) -> None:
    assert bench.turn(timed=True).is_ready()


def test_who_came_after_a_timed_job_does_not_pass_it(bench: Bench) -> None:
    """Else whoever starts one job after another could keep it waiting for ever."""
    first, timed, late = bench.turn(), bench.turn(timed=True), bench.turn()
    assert first.is_ready()
    assert not timed.is_ready()
    assert not late.is_ready()


def test_another_work_folder_is_another_matter(bench: Bench, tmp_path: Path) -> None:
    assert bench.turn(timed=True).is_ready()
    assert Bench(tmp_path / "other").turn(timed=True).is_ready()


@pytest.mark.parametrize(
    ("verb", "spec", "timed"),
    [
        ("grade", TIMED, True),
        ("grade", {"purpose": "practice", "timing": True}, False),
        ("grade", {"purpose": "graded", "timing": False}, False),
        ("grade", {**TIMED, "lease": {"gpus": ["GPU-1"]}}, False),
        ("serve", {"purpose": "graded", "stages": ["fidelity", "load"]}, True),
        ("serve", {"purpose": "screen", "stages": ["fidelity", "load"]}, True),
        ("serve", {"purpose": "graded", "stages": ["fidelity"]}, False),
        ("search", {"stages": ["fidelity", "load"]}, True),
        ("run", {}, False),
        ("compile", {"purpose": "graded"}, False),
    ],
)
def test_what_decides_by_the_processors_clock_is_timed(
    verb: str, spec: dict[str, object], timed: bool
) -> None:
    assert is_timed(verb, spec) is timed


def test_a_job_that_is_started_beside_a_timed_one_begins_when_that_has_ended(bench: Bench) -> None:
    timed = bench.launched(timed=True)
    assert until((timed / "began").exists)
    beside = bench.launched()
    assert until(lambda: waits(beside))
    (timed / "end").touch()
    assert until((beside / "began").exists)
    assert (timed / "rc").read_text() == "0\n"
    (beside / "end").touch()
    assert until((beside / "rc").exists)


def test_a_timed_job_that_waits_can_be_cancelled_and_one_that_is_killed_frees_its_turn(
    bench: Bench,
) -> None:
    killed = bench.launched(timed=True)
    assert until((killed / "began").exists)
    cancelled, next_ = bench.launched(timed=True), bench.launched()
    assert until(lambda: waits(cancelled) and waits(next_))
    (cancelled / "cancel").touch()
    assert until((cancelled / "rc").exists)
    assert (cancelled / "rc").read_text() == "143\n"
    assert not (cancelled / "began").exists()
    os.kill(supervisor(killed), signal.SIGKILL)
    assert until((next_ / "began").exists)
    (next_ / "end").touch()
    assert until((next_ / "rc").exists)
