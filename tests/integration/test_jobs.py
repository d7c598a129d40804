import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inferproof.core.errors import InfrastructureError, UsageError
from inferproof.core.values import JobStatus
from inferproof.hosts.base import JobRequest, JobState, follow
from inferproof.hosts.local import Local
from inferproof_remote import cgroups, processes

pytestmark = pytest.mark.integration
LIMITS = {"memory_mib": 512, "tmp_mib": 16, "processes": 16, "call_s": 5}


@pytest.fixture
def job_id() -> Iterator[str]:
    name = f"j-{os.getpid()}-{time.monotonic_ns()}"
    yield name
    for process in marked(name):
        processes.send(process, signal.SIGKILL)
    cgroups.cleanup(f"{name}.")


def marked(job_id: str) -> list[processes.Process]:
    return processes.with_environment("INFERPROOF_JOB", job_id)


def sandboxed(token: str) -> list[int]:
    """Return the processes, in any namespace, whose command line holds `token`."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if token.encode() in line:
            found.append(int(entry.name))
    return found


def request(job_id: str, *argv: str, wall_s: float = 60, timeout_s: float = 50) -> JobRequest:
    return JobRequest(
        job_id=job_id,
        verb="run",
        wall_s=wall_s,
        spec={"argv": list(argv), "limits": LIMITS, "timeout_s": timeout_s},
    )


async def finished(host: Local, job_id: str, wait_s: float = 30) -> JobState:
    states = [state async for state in follow(host, job_id, wait_s=wait_s)]
    return states[-1]


async def until(condition: Callable[[], object], within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def result(host: Local, job_id: str) -> dict[str, object]:
    folder = asyncio.run(host.result_dir(job_id))
    return json.loads((folder / "result.json").read_text())


def test_a_command_runs_in_the_sandbox_and_its_output_comes_back(tmp_path: Path, job_id: str):
    host = Local(tmp_path)

    async def scenario() -> JobState:
        await host.start(request(job_id, "sh", "-c", "echo out; echo err >&2; pwd; exit 3"))
        return await finished(host, job_id)

    assert asyncio.run(scenario()).status is JobStatus.DONE
    found = result(host, job_id)
    assert found["rc"] == 3
    assert found["output_tail"] == f"out\nerr\n{tmp_path}/jobs/{job_id}/scratch\n"
    assert found["incidents"] == []


def test_the_snapshot_is_readable_and_cannot_be_changed(tmp_path: Path, job_id: str):
    host = Local(tmp_path)
    shell = "cat a.txt sub/b.txt; echo x > a.txt; echo kept > $SCRATCH/b && cat $SCRATCH/b"
    asked = request(job_id, "sh", "-c", shell)
    asked = JobRequest(
        job_id=job_id,
        verb="run",
        wall_s=asked.wall_s,
        spec=asked.spec,
        inputs={"candidate/a.txt": b"sources\n", "candidate/sub/b.txt": b"below"},
    )

    async def scenario() -> JobState:
        await host.start(asked)
        return await finished(host, job_id)

    assert asyncio.run(scenario()).status is JobStatus.DONE
    tail = str(result(host, job_id)["output_tail"])
    assert tail.startswith("sources\nbelow")
    assert "Read-only file system" in tail
    assert tail.endswith("kept\n")


@pytest.mark.parametrize("name", ["../x", "/x", "candidate/../../x", ""])
def test_inputs_stay_inside_the_job_folder(tmp_path: Path, job_id: str, name: str):
    asked = JobRequest(job_id=job_id, verb="run", wall_s=1, spec={}, inputs={name: b""})
    with pytest.raises(UsageError, match="not a path below"):
        asyncio.run(Local(tmp_path).start(asked))
    assert not (tmp_path / "jobs" / job_id).exists()


def test_long_output_is_cut_to_its_tail_and_counted(tmp_path: Path, job_id: str):
    host = Local(tmp_path)

    async def scenario() -> JobState:
        await host.start(request(job_id, "sh", "-c", "yes abcdefg | head -c 1000000; echo end"))
        return await finished(host, job_id)

    assert asyncio.run(scenario()).status is JobStatus.DONE
    found = result(host, job_id)
    assert found["output_bytes"] == 1_000_004
    assert len(str(found["output_tail"])) <= 4096
    assert str(found["output_tail"]).endswith("end\n")


def test_a_command_beyond_its_time_is_an_incident_not_a_failed_job(tmp_path: Path, job_id: str):
    host = Local(tmp_path)

    async def scenario() -> JobState:
        await host.start(request(job_id, "sleep", "61.25", timeout_s=0.3))
        return await finished(host, job_id)

    assert asyncio.run(scenario()).status is JobStatus.DONE
    found = result(host, job_id)
    assert found["rc"] is None
    assert [incident["code"] for incident in found["incidents"]] == ["timed_out"]  # type: ignore[index]


def test_cancel_reaches_into_the_sandbox(tmp_path: Path, job_id: str):
    host, token = Local(tmp_path), f"77{time.monotonic_ns()}"

    async def scenario() -> JobState:
        await host.start(request(job_id, "sh", "-c", f"setsid sleep {token} & sleep {token}"))
        assert await until(lambda: len(sandboxed(token)) >= 2)
        return await host.cancel(job_id)

    assert asyncio.run(scenario()).status is JobStatus.CANCELLED
    assert sandboxed(token) == []
    assert marked(job_id) == []
    assert cgroups.cleanup(f"{job_id}.") == ()


def test_a_second_host_finds_and_cancels_the_job(tmp_path: Path, job_id: str):
    token = f"77{time.monotonic_ns()}"

    async def scenario() -> JobState:
        await Local(tmp_path).start(request(job_id, "sleep", token))
        other = Local(tmp_path)
        assert (await other.state(job_id)).status is JobStatus.RUNNING
        assert await until(lambda: sandboxed(token))
        return await other.cancel(job_id)

    assert asyncio.run(scenario()).status is JobStatus.CANCELLED
    assert sandboxed(token) == []


STARTER = """
import asyncio, sys
from pathlib import Path
from inferproof.hosts.base import JobRequest
from inferproof.hosts.local import Local
limits = {"memory_mib": 512, "tmp_mib": 16, "processes": 16, "call_s": 5}
spec = {"argv": ["sleep", sys.argv[3]], "limits": limits, "timeout_s": 50}
request = JobRequest(job_id=sys.argv[2], verb="run", wall_s=60, spec=spec)
asyncio.run(Local(Path(sys.argv[1])).start(request))
print("started", flush=True)
input()
"""


def test_a_job_outlives_a_starter_that_is_killed(tmp_path: Path, job_id: str):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path), job_id, "1.5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        os.killpg(starter.pid, signal.SIGKILL)
    host = Local(tmp_path)
    assert asyncio.run(host.state(job_id)).status is JobStatus.RUNNING
    assert asyncio.run(finished(host, job_id)).status is JobStatus.DONE


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_killed_supervisor_leaves_a_lost_job_and_cancel_sweeps_it(
    tmp_path: Path, job_id: str, cancelled: bool
):
    host, token = Local(tmp_path), f"77{time.monotonic_ns()}"

    async def scenario() -> JobState:
        await host.start(request(job_id, "sleep", token))
        assert await until(lambda: sandboxed(token))
        supervisor = int((tmp_path / "jobs" / job_id / "pid").read_text().split()[0])
        os.kill(supervisor, signal.SIGKILL)
        assert await until(lambda: processes.find(supervisor) is None)
        return await (host.cancel(job_id) if cancelled else host.state(job_id))

    found = asyncio.run(scenario())
    assert found.status is (JobStatus.CANCELLED if cancelled else JobStatus.LOST)
    if not cancelled:
        assert asyncio.run(host.cancel(job_id)).rc == 143
    assert sandboxed(token) == []
    assert marked(job_id) == []
    assert cgroups.cleanup(f"{job_id}.") == ()


def test_cancel_ends_a_job_whose_supervisor_is_stopped(
    tmp_path: Path, job_id: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("inferproof.hosts.folders._CANCEL_S", 0.5)
    host, token = Local(tmp_path), f"77{time.monotonic_ns()}"

    async def scenario() -> JobState:
        await host.start(request(job_id, "sleep", token))
        assert await until(lambda: sandboxed(token))
        os.kill(int((tmp_path / "jobs" / job_id / "pid").read_text().split()[0]), signal.SIGSTOP)
        return await host.cancel(job_id)

    assert asyncio.run(scenario()).status is JobStatus.CANCELLED
    assert sandboxed(token) == []
    assert marked(job_id) == []


def test_wall_clock_failure_says_so(tmp_path: Path, job_id: str):
    host = Local(tmp_path)

    async def scenario() -> JobState:
        await host.start(request(job_id, "sleep", "61.5", wall_s=1))
        return await finished(host, job_id)

    found = asyncio.run(scenario())
    assert (found.status, found.rc) == (JobStatus.FAILED, 124)
    assert "wall clock of 1 s" in found.failure


def test_an_error_of_the_bench_is_one_line_and_the_log_has_the_rest(tmp_path: Path, job_id: str):
    host = Local(tmp_path)
    asked = JobRequest(job_id=job_id, verb="run", wall_s=20, spec={"argv": "not a list"})

    async def scenario() -> tuple[JobState, str]:
        await host.start(asked)
        found = await finished(host, job_id)
        return found, await host.log_tail(job_id, limit_bytes=5000)

    found, log = asyncio.run(scenario())
    assert (found.status, found.rc) == (JobStatus.FAILED, 70)
    assert found.failure == "JobFormatError: argv is 'not a list', not a list of strings"
    assert "Traceback" in log


def test_facts_come_back_as_a_job(tmp_path: Path, job_id: str):
    host = Local(tmp_path)

    async def scenario() -> JobState:
        await host.start(JobRequest(job_id=job_id, verb="facts", wall_s=20, spec={}))
        return await finished(host, job_id)

    assert asyncio.run(scenario()).status is JobStatus.DONE
    assert result(host, job_id)["cores"] == len(os.sched_getaffinity(0))


def test_a_python_that_is_not_there_is_an_infrastructure_failure(tmp_path: Path, job_id: str):
    host = Local(tmp_path, python=Path("/nonexistent/python"))
    with pytest.raises(InfrastructureError, match="/nonexistent/python"):
        asyncio.run(host.start(request(job_id, "true")))
