import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inferproof_remote import processes

LAUNCH = (
    "import sys; from pathlib import Path; from inferproof_remote import supervise;"
    "sys.exit(supervise.launch(Path(sys.argv[1]), Path(sys.argv[2])))"
)
RESULT = "from pathlib import Path; import sys; J = Path(sys.argv[2])\n"
GOOD = RESULT + "(J / 'out').mkdir(); (J / 'out' / 'result.json').write_text('{}')\n"
ESCAPEES = (
    RESULT
    + """
import os, signal, subprocess, time
for name, command in {
    "plain": "exec sleep 600",
    "setsid": "exec setsid sleep 600",
    "deaf": "trap '' TERM; while :; do sleep 600; done",
    "double": "(setsid sleep 600 & )",
    "orphan": "(sh -c 'setsid sh -c \\"sleep 600 & wait\\" & ')",
}.items():
    subprocess.Popen(["sh", "-c", command], env={**os.environ, "ESCAPEE": J.name})
(J / "ready").touch()
"""
)
FOREVER = "\nimport time\nwhile True: time.sleep(600)\n"


def until(condition: Callable[[], object], within_s: float = 20.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def job_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / f"job-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    yield folder
    for process in processes.with_environment("INFERPROOF_JOB", folder.name):
        processes.send(process, signal.SIGKILL)


def prepare(job_dir: Path, script: str, wall_s: float) -> Path:
    spec: dict[str, object] = {}
    body = {"schema": 1, "job_id": job_dir.name, "verb": "run", "wall_s": wall_s, "spec": spec}
    (job_dir / "job.json").write_text(json.dumps(body))
    program = job_dir / "program.py"
    program.write_text(script)
    return program


def launch(job_dir: Path, script: str, *, wall_s: float = 60.0) -> None:
    program = prepare(job_dir, script, wall_s)
    argv = [sys.executable, "-c", LAUNCH, str(job_dir), str(program)]
    subprocess.run(argv, check=True, timeout=20)


def escapees(job_dir: Path) -> int:
    return len(processes.with_environment("ESCAPEE", job_dir.name))


def rc(job_dir: Path) -> int:
    assert until((job_dir / "rc").exists)
    return int((job_dir / "rc").read_text())


def test_a_good_job_ends_in_zero_and_names_its_processes(job_dir: Path):
    launch(job_dir, GOOD)
    supervisor, start_ticks, child = map(int, (job_dir / "pid").read_text().split())
    assert rc(job_dir) == 0
    assert supervisor != child
    assert start_ticks > 0
    assert not (job_dir / "failure").exists()


def test_children_that_escaped_are_killed_after_a_normal_end(job_dir: Path):
    launch(job_dir, GOOD + ESCAPEES)
    assert rc(job_dir) == 0
    assert (job_dir / "ready").exists()
    assert escapees(job_dir) == 0


def test_cancel_file_ends_every_escaped_child(job_dir: Path):
    launch(job_dir, ESCAPEES + FOREVER)
    assert until((job_dir / "ready").exists)
    assert until(lambda: escapees(job_dir) >= 5)
    (job_dir / "cancel").touch()
    assert rc(job_dir) == 143
    assert escapees(job_dir) == 0
    assert (job_dir / "failure").read_text() == "the job was cancelled\n"


def test_term_to_the_supervisor_cancels(job_dir: Path):
    launch(job_dir, FOREVER)
    os.kill(int((job_dir / "pid").read_text().split()[0]), signal.SIGTERM)
    assert rc(job_dir) == 143


def test_wall_clock_ends_a_job_that_hangs(job_dir: Path):
    launch(job_dir, ESCAPEES + FOREVER, wall_s=0.5)
    assert rc(job_dir) == 124
    assert escapees(job_dir) == 0
    assert "wall clock of 0.5 s" in (job_dir / "failure").read_text()


def test_exit_zero_without_a_result_is_a_failure(job_dir: Path):
    launch(job_dir, RESULT)
    assert rc(job_dir) == 70
    assert "without a result (exit code 0)" in (job_dir / "failure").read_text()


def test_a_killed_verb_is_a_failure_that_names_the_signal(job_dir: Path):
    launch(job_dir, "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert rc(job_dir) == 70
    assert "killed by SIGTERM" in (job_dir / "failure").read_text()


def test_rc_appears_only_once_nothing_of_the_job_runs(job_dir: Path):
    launch(job_dir, GOOD + ESCAPEES)
    assert until(lambda: escapees(job_dir) >= 1)
    assert not (job_dir / "rc").exists()
    assert rc(job_dir) == 0
    assert processes.with_environment("INFERPROOF_JOB", job_dir.name) == []


def test_a_job_survives_the_death_of_its_starter(job_dir: Path):
    script = GOOD + "import time\nwhile not (J / 'go').exists(): time.sleep(0.01)\n"
    program = prepare(job_dir, script, 60.0)
    waiting = LAUNCH.replace("sys.exit", "print") + ";input()"
    starter = subprocess.Popen(
        [sys.executable, "-c", waiting, str(job_dir), str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert until((job_dir / "pid").exists)
    os.killpg(starter.pid, signal.SIGKILL)
    starter.wait()
    assert starter.stdin is not None
    starter.stdin.close()
    (job_dir / "go").touch()
    assert rc(job_dir) == 0


def test_a_malformed_job_starts_nothing(job_dir: Path):
    (job_dir / "job.json").write_text('{"schema": 2}')
    argv = [sys.executable, "-c", LAUNCH, str(job_dir), "/dev/null"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    assert done.returncode != 0
    assert "job keys differ" in done.stderr
    assert not (job_dir / "pid").exists()


def test_a_reused_pid_is_not_signalled():
    me = processes.find(os.getpid())
    assert me is not None
    other = processes.Process(pid=me.pid, parent=me.parent, start_ticks=1, state="R")
    assert not processes.send(other, signal.SIGKILL)
