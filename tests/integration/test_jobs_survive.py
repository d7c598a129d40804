import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferproof.core.values import JobStatus
from inferproof.hosts.local import Local
from inferproof_remote import cgroups, processes

pytestmark = pytest.mark.integration
MOMENTS = 8
STARTER = """
import asyncio, sys
from pathlib import Path
from inferproof.hosts.base import JobRequest
from inferproof.hosts.local import Local
limits = {"memory_mib": 512, "tmp_mib": 16, "processes": 16, "call_s": 5}
spec = {"argv": ["sleep", "600"], "limits": limits, "timeout_s": 50}
request = JobRequest(job_id=sys.argv[2], verb="run", wall_s=60, spec=spec)
host = Local(Path(sys.argv[1]))
print("go", flush=True)
asyncio.run(host.start(request))
input()
"""
FROZEN = """
import sys, time
from pathlib import Path
from inferproof_remote import job
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.sandbox import Sandbox
J = Path(sys.argv[2])
plan = SandboxPlan(memory_mib=256, tmp_mib=16, processes=16)
with Sandbox(plan, name=job.sandbox_name("frozen")) as box:
    box.spawn(["sleep", J.name.removeprefix("f-")], stdout=1)
    while len(box.pids()) < 2: time.sleep(0.01)
    box.freeze()
    (J / "ready").touch()
    while True: time.sleep(600)
"""
LAUNCH = (
    "import sys; from pathlib import Path; from inferproof_remote import supervise;"
    "sys.exit(supervise.launch(Path(sys.argv[1]), Path(sys.argv[2])))"
)
ENDLESS = "import sys\nwhile True: sys.stdout.write('word ' * 1000)\n"
SHORT_LOG = LAUNCH.replace("sys.exit", "supervise.MOST_LOG_BYTES = 100_000; sys.exit")


@pytest.fixture
def stem() -> Iterator[str]:
    name = f"{os.getpid()}{time.monotonic_ns()}"
    yield name
    for index in range(MOMENTS):
        for process in processes.with_environment("INFERPROOF_JOB", f"s-{name}-{index}"):
            processes.send(process, signal.SIGKILL)
        cgroups.cleanup(f"s-{name}-{index}.")
    cgroups.cleanup(f"f-{name}.")


async def settled(host: Local, job_id: str) -> JobStatus:
    deadline = time.monotonic() + 10
    while (state := await host.state(job_id)).status is JobStatus.QUEUED:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.02)
    return state.status


def test_a_server_killed_at_any_moment_leaves_jobs_that_are_found_or_never_were(
    tmp_path: Path, stem: str
):
    draw = random.Random(0)
    found: list[JobStatus] = []
    for index in range(MOMENTS):
        job_id = f"s-{stem}-{index}"
        starter = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(tmp_path), job_id],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with starter:
            assert starter.stdout is not None
            assert starter.stdout.readline() == b"go\n"
            time.sleep(draw.uniform(0, 0.3))
            starter.kill()
        host = Local(tmp_path)
        if (tmp_path / "jobs" / job_id).exists():
            found.append(asyncio.run(settled(host, job_id)))
            assert asyncio.run(host.cancel(job_id)).status is JobStatus.CANCELLED
        assert processes.with_environment("INFERPROOF_JOB", job_id) == []
        assert cgroups.cleanup(f"{job_id}.") == ()
    assert JobStatus.RUNNING in found


def test_a_frozen_sandbox_ends_with_its_job(tmp_path: Path, stem: str):
    folder = tmp_path / f"f-{stem}"
    folder.mkdir()
    (folder / "job.json").write_text(
        f'{{"schema": 1, "job_id": "f-{stem}", "verb": "run", "wall_s": 30, "spec": {{}}}}'
    )
    (folder / "program.py").write_text(FROZEN)
    argv = [sys.executable, "-c", LAUNCH, str(folder), str(folder / "program.py")]
    subprocess.run(argv, check=True, timeout=20)
    deadline = time.monotonic() + 15
    while not (folder / "ready").exists():
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.02)
    supervisor = int((folder / "pid").read_text().split()[0])
    tree = processes.descendants([supervisor])
    assert len(tree) >= 3
    (folder / "cancel").touch()
    while not (folder / "rc").exists():
        assert time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.02)
    assert (folder / "rc").read_text() == "143\n"
    assert [each for each in tree if processes.find(each.pid) == each] == []
    assert cgroups.cleanup(f"f-{stem}.") == ()


def test_an_endless_log_is_cut_at_its_limit(tmp_path: Path, stem: str):
    folder = tmp_path / f"f-{stem}"
    folder.mkdir()
    (folder / "job.json").write_text(
        f'{{"schema": 1, "job_id": "f-{stem}", "verb": "run", "wall_s": 0.5, "spec": {{}}}}'
    )
    (folder / "program.py").write_text(ENDLESS)
    argv = [sys.executable, "-c", SHORT_LOG, str(folder), str(folder / "program.py")]
    subprocess.run(argv, check=True, timeout=20)
    deadline = time.monotonic() + 15
    while not (folder / "rc").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert (folder / "rc").read_text() == "124\n"
    assert (folder / "log").read_text() == "word " * 20_000
