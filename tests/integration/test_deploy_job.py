"""A deployment as a job: it outlives whoever started it, is scaled, and leaves nothing behind."""

import asyncio
import hashlib
import http.client
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inferproof.backends import deploy
from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.values import JobStatus
from inferproof.hosts.base import JobRequest, JobState, follow
from inferproof.hosts.local import Local
from inferproof.rollout import has_replicas
from inferproof_remote import cgroups, processes

pytestmark = pytest.mark.integration
FILES = {
    path.name: path.read_bytes()
    for path in (Path(__file__).parent / "engines" / "plain").iterdir()
    if path.is_file()
}
LIMITS = {"memory_mib": 512, "tmp_mib": 16, "processes": 40, "call_s": 2}


@pytest.fixture
def job_id() -> Iterator[str]:
    name = f"d-{os.getpid()}-{time.monotonic_ns()}"
    yield name
    for process in marked(name):
        processes.send(process, signal.SIGKILL)
    cgroups.cleanup(f"{name}.")


def marked(job_id: str) -> list[processes.Process]:
    return processes.with_environment("INFERPROOF_JOB", job_id)


def whose_line_holds(*words: str) -> list[int]:
    """Return the processes, in any namespace, whose command line holds all these words."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if all(word.encode() in line for word in words):
            found.append(int(entry.name))
    return found


def request(job_id: str, token: str, *, replicas: int = 1, wall_s: float = 120) -> JobRequest:
    """Return a job whose engines carry `token` on their command lines."""
    return JobRequest(
        job_id=job_id,
        verb="deploy",
        wall_s=wall_s,
        spec={
            "candidate_digest": "a" * 64,
            "candidate_files": {
                name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()
            },
            "limits": LIMITS,
            "threads": 1,
            "model": {"name": "none", "path": "/usr/share"},
            "tools": {"haproxy": None},
            "plan": {
                "engine": "command",
                "supervised": True,
                "argv": ["{python}", "serve.py", "{port}", token],
                "env": {},
                "health": "/health",
                "url": None,
                "start_s": 30,
                "trusted": False,
            },
            "replicas": replicas,
        },
        inputs={f"candidate/{name}": data for name, data in FILES.items()},
    )


async def until_healthy(host: Local, job_id: str, replicas: int) -> JobState:
    states = [
        state async for state in follow(host, job_id, wait_s=40, until=has_replicas(replicas))
    ]
    return states[-1]


async def ended(host: Local, job_id: str) -> JobState:
    return [state async for state in follow(host, job_id, wait_s=40)][-1]


async def facts(host: Local, job_id: str) -> DeployFacts:
    folder = await host.result_dir(job_id)
    return deploy.parse((folder / deploy.STATE_FILE).read_bytes())


def get(endpoint: str, path: str) -> int:
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=20)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def until(condition: Callable[[], object], within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def refuses(endpoint: str) -> bool:
    try:
        get(endpoint, "/health")
    except OSError:
        return True
    return False


def test_a_deployment_is_found_scaled_and_cancelled_by_whoever_asks(tmp_path: Path, job_id: str):
    host, other, token = Local(tmp_path), Local(tmp_path), f"t{time.monotonic_ns()}"

    async def scenario() -> tuple[str, JobState]:
        await host.start(request(job_id, token))
        assert (await until_healthy(other, job_id, 1)).status is JobStatus.RUNNING
        endpoint = (await facts(other, job_id)).endpoint
        assert get(endpoint, "/health") == 200
        await other.tell(job_id, deploy.CONTROL_FILE, deploy.control(3))
        state = await until_healthy(host, job_id, 3)
        assert state.progress is not None
        assert endpoint in state.progress.message
        now = await facts(host, job_id)
        assert (now.endpoint, now.deployments[0].healthy) == (endpoint, 3)
        await host.tell(job_id, deploy.CONTROL_FILE, deploy.control(1))
        await until_healthy(host, job_id, 1)
        assert get(endpoint, "/health") == 200
        return endpoint, await other.cancel(job_id)

    endpoint, state = asyncio.run(scenario())
    assert state.status is JobStatus.CANCELLED
    assert refuses(endpoint)
    assert marked(job_id) == []
    assert whose_line_holds(token) == []


def test_at_the_end_of_its_time_it_leaves_its_facts(tmp_path: Path, job_id: str):
    host, token = Local(tmp_path), f"t{time.monotonic_ns()}"

    async def scenario() -> JobState:
        await host.start(request(job_id, token, wall_s=8))
        return await ended(host, job_id)

    assert asyncio.run(scenario()).status is JobStatus.DONE
    left = deploy.parse((tmp_path / "jobs" / job_id / "out" / "result.json").read_bytes())
    assert left.deployments[0].healthy == 1
    assert left.deployments[0].incidents == ()
    assert whose_line_holds(token) == []


def test_when_no_replica_is_left_it_ends_and_says_why(tmp_path: Path, job_id: str):
    host, token = Local(tmp_path), f"t{time.monotonic_ns()}"

    async def scenario() -> JobState:
        await host.start(request(job_id, token))
        await until_healthy(host, job_id, 1)
        get((await facts(host, job_id)).endpoint, "/crash")
        return await ended(host, job_id)

    assert asyncio.run(scenario()).status is JobStatus.DONE
    left = deploy.parse((tmp_path / "jobs" / job_id / "out" / "result.json").read_bytes())
    (incident,) = left.deployments[0].incidents
    assert incident.code == "crashed"
    assert "SIGSEGV" in incident.detail


def test_files_that_were_exchanged_are_not_deployed(tmp_path: Path, job_id: str):
    host, token = Local(tmp_path), f"t{time.monotonic_ns()}"
    asked = request(job_id, token)
    exchanged = JobRequest(
        job_id=job_id,
        verb=asked.verb,
        wall_s=asked.wall_s,
        spec=asked.spec,
        inputs={"candidate/serve.py": b"print('mine')"},
    )

    async def scenario() -> JobState:
        await host.start(exchanged)
        return await ended(host, job_id)

    state = asyncio.run(scenario())
    assert state.status is JobStatus.FAILED
    assert "candidate/serve.py is not what the keeper sent" in state.failure


@pytest.mark.parametrize("part", ["haproxy", "one engine", "one shim", "one sandbox"])
def test_a_part_that_is_killed_leaves_no_orphan(tmp_path: Path, job_id: str, part: str):
    host, token = Local(tmp_path), f"t{time.monotonic_ns()}"
    lines = {
        "haproxy": ("haproxy.cfg", "-db"),
        "one engine": ("serve.py", token),
        "one shim": ("asyncio", token),
        "one sandbox": ("bwrap", token),
    }

    def victims() -> list[int]:
        found = whose_line_holds(*lines[part])
        if part == "haproxy":
            found = [pid for pid in found if pid in {one.pid for one in marked(job_id)}]
        if part == "one engine":
            found = [pid for pid in found if pid not in whose_line_holds("asyncio")]
        return found

    async def scenario() -> tuple[DeployFacts, JobState]:
        await host.start(request(job_id, token, replicas=2))
        await until_healthy(host, job_id, 2)
        os.kill(victims()[0], signal.SIGKILL)
        if part == "haproxy":
            return await facts(host, job_id), await ended(host, job_id)
        await until_healthy(host, job_id, 2)
        assert await asyncio.to_thread(
            until, lambda: len(asyncio.run(facts(host, job_id)).deployments[0].incidents) == 1
        )
        now = await facts(host, job_id)
        assert [get(now.endpoint, "/health") for _ in range(4)] == [200] * 4
        return now, await host.cancel(job_id)

    now, state = asyncio.run(scenario())
    if part == "haproxy":
        assert state.status is JobStatus.FAILED
        assert "the balancer ended" in state.failure
    else:
        (incident,) = now.deployments[0].incidents
        assert incident.code == "crashed"
        assert "SIGKILL" in incident.detail
        assert state.status is JobStatus.CANCELLED
    assert whose_line_holds(token) == []
    assert marked(job_id) == []


@pytest.mark.parametrize("keeper", ["the supervisor", "the deploying process", "both"])
def test_a_keeper_of_the_job_that_is_killed_leaves_no_orphan(
    tmp_path: Path, job_id: str, keeper: str
):
    host, token = Local(tmp_path), f"t{time.monotonic_ns()}"

    async def scenario() -> tuple[str, JobState]:
        await host.start(request(job_id, token, replicas=2))
        await until_healthy(host, job_id, 2)
        endpoint = (await facts(host, job_id)).endpoint
        supervisor, _, child = map(int, (tmp_path / "jobs" / job_id / "pid").read_text().split())
        if keeper != "the deploying process":
            os.kill(supervisor, signal.SIGKILL)
        if keeper != "the supervisor":
            os.kill(child, signal.SIGKILL)
        await ended(host, job_id)
        return endpoint, await host.cancel(job_id)

    endpoint, state = asyncio.run(scenario())
    assert state.status in (JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.LOST)
    assert until(lambda: not whose_line_holds(token))
    assert until(lambda: not marked(job_id))
    assert refuses(endpoint)
    assert not [name for name in os.listdir("/sys/fs/cgroup") if job_id in name]  # noqa: PTH208


def test_control_that_makes_no_sense_changes_nothing(tmp_path: Path, job_id: str):
    host, token = Local(tmp_path), f"t{time.monotonic_ns()}"

    async def scenario() -> None:
        await host.start(request(job_id, token))
        await until_healthy(host, job_id, 1)
        for text in ("{", "[]", '{"replicas": 0}', '{"replicas": 1e9}', '{"replicas": "2"}'):
            (tmp_path / "jobs" / job_id / deploy.CONTROL_FILE).write_text(text)
            await asyncio.sleep(0.3)
            assert json.loads((tmp_path / "jobs" / job_id / "progress.json").read_text()) == {
                "done": 1,
                "total": 1,
                "message": f"{(await facts(host, job_id)).endpoint}, 1 of 1 replicas healthy",
            }
        await host.cancel(job_id)

    asyncio.run(scenario())
