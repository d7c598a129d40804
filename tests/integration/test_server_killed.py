"""The server is killed in mid-job: its jobs are found again, and end once, and leave nothing."""

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inferproof.core.reports import JobReport
from inferproof.core.values import Digest, JobStatus, Purpose
from inferproof.pipeline import Keeper
from inferproof_remote import cgroups, job, processes
from small_campaign import cpp_candidate, sealed_keeper

WAIT_S = 90.0
TOOL_WAIT_S = 45.0
LONGEST_S = 7.0
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Agent:
    """Speaks MCP to a server process, one line at a time, and can kill it in mid-call."""

    def __init__(self, server: "subprocess.Popen[bytes]") -> None:
        self._server = server
        self._number = 0
        self.ask("initialize", HELLO)
        self.tell("notifications/initialized", {})

    def tell(self, method: str, params: object, **more: object) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params, **more}
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(message).encode() + b"\n")
        self._server.stdin.flush()

    def ask(self, method: str, params: object) -> object:
        self._number += 1
        self.tell(method, params, id=self._number)
        assert self._server.stdout is not None
        while line := self._server.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self._number:
                return answer["result"]
        raise AssertionError("the server went away")

    def call_and_kill(self, tool: str, arguments: object, after_s: float) -> None:
        """Call a tool and kill the server `after_s` later, answered or not."""
        self.tell("tools/call", {"name": tool, "arguments": arguments}, id="killed")
        time.sleep(after_s)
        self._server.kill()
        self._server.wait()


@contextmanager
def serving(campaign: Path) -> Generator[Agent]:
    argv = [sys.executable, "-m", "inferproof.cli", "serve", "--campaign", str(campaign)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        try:
            yield Agent(server)
        finally:
            server.kill()


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a campaign with one candidate, checked in seconds."""
    folder = tmp_path_factory.mktemp("killed")
    keeper, _ = sealed_keeper(folder / "campaign")
    keeper.submit_candidate(cpp_candidate(folder / "kernel"))
    return folder / "campaign"


def candidate_of(campaign: Path) -> Digest:
    return next((campaign / ".inferproof/candidates").glob("[0-9a-f]*")).name


def job_ids(keeper: Keeper) -> list[str]:
    return [attempt.job_id for attempt, _ in keeper.docket.attempts()]


def brought_to_its_end(campaign: Path, job_id: str) -> JobReport:
    """Return the job's end as a server sees it that never heard of the job before."""
    keeper = Keeper.open(campaign)
    report = asyncio.run(keeper.follow(job_id, wait_s=WAIT_S))
    if report.status is JobStatus.QUEUED:
        assert not (keeper.state_dir / "jobs" / job_id).exists(), "launched, and yet queued"
        return report
    assert report.status in (JobStatus.DONE, JobStatus.LOST), report
    return report


def is_one_outcome_each(keeper: Keeper, queued: set[str]) -> None:
    outcomes = [str(entry.body["job_id"]) for entry in keeper.ledger.entries("outcome")]
    assert sorted(outcomes) == sorted(set(job_ids(keeper)) - queued)


def nothing_runs(job_id: str) -> None:
    assert processes.with_environment(job.MARK, job_id) == []
    assert [p for p in processes.descendants([1]) if job_id in command_line(p.pid)] == []
    folders = cgroups.find().folders()
    assert [path for folder in folders for path in folder.rglob(f"inferproof-*{job_id}*")] == []


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def killed_at(campaign: Path, after_s: float, *, wait_s: float) -> JobReport | None:
    """Kill a server `after_s` into a check; return the job's end, or None if none was recorded."""
    before = set(job_ids(Keeper.open(campaign)))
    arguments = {"candidate": candidate_of(campaign), "purpose": "practice", "wait_s": wait_s}
    with serving(campaign) as agent:
        agent.ask("tools/call", {"name": "campaign_status", "arguments": {}})
        head = Keeper.open(campaign).head()
        agent.call_and_kill("check_numerics", arguments, after_s)
    assert Keeper.open(campaign).verify(head).ok
    started = set(job_ids(Keeper.open(campaign))) - before
    assert len(started) <= 1
    report = brought_to_its_end(campaign, started.pop()) if started else None
    keeper = Keeper.open(campaign)
    verified = keeper.verify(head)
    assert verified.ok, verified.findings
    if report is not None and report.status.is_final:
        nothing_runs(report.job_id)
    return report


def cancelled_at(campaign: Path, after_s: float) -> None:
    """Cancel a check `after_s` after its start, by another server; nothing of it may be left."""
    keeper = Keeper.open(campaign)
    started = asyncio.run(
        keeper.start(
            "check_numerics",
            candidate=candidate_of(campaign),
            target="local",
            purpose=Purpose.PRACTICE,
        )
    )
    time.sleep(after_s)
    report = asyncio.run(Keeper.open(campaign).cancel(started.job_id))
    assert report.status in (JobStatus.CANCELLED, JobStatus.DONE), report
    nothing_runs(started.job_id)


def moments(count: int) -> list[float]:
    """Return delays: each fourth before the attempt or just behind it, the rest anywhere later."""
    draw = random.Random(20)
    early = (0.0, 0.06, 0.12, 0.3)
    return [
        draw.uniform(0.4, LONGEST_S) if index % 4 else early[index // 4 % 4] * draw.random()
        for index in range(count)
    ]


def kill_at_each(campaign: Path, delays: list[float]) -> list[JobReport | None]:
    ends = [killed_at(campaign, s, wait_s=TOOL_WAIT_S * (n % 3 != 0)) for n, s in enumerate(delays)]
    queued = {end.job_id for end in ends if end is not None and not end.status.is_final}
    is_one_outcome_each(Keeper.open(campaign), queued)
    return ends


def is_done(end: JobReport | None) -> bool:
    return end is not None and end.status is JobStatus.DONE


def test_a_killed_server_loses_no_job(campaign: Path):
    ends = kill_at_each(campaign, moments(4))
    assert sum(is_done(end) for end in ends) >= 3


def test_nothing_runs_after_a_cancel(campaign: Path):
    for after_s in (0.0, random.Random(3).uniform(0.5, 4.0)):
        cancelled_at(campaign, after_s)
    assert Keeper.open(campaign).verify(None).ok


@pytest.mark.zoo
@pytest.mark.timeout(900)
def test_a_server_killed_at_20_moments_loses_no_job(campaign: Path):
    ends = kill_at_each(campaign, moments(20))
    assert sum(is_done(end) for end in ends) >= 10, [end and end.status for end in ends]


@pytest.mark.zoo
@pytest.mark.timeout(300)
def test_nothing_runs_after_a_cancel_at_20_moments(campaign: Path):
    draw = random.Random(21)
    for _ in range(20):
        cancelled_at(campaign, draw.uniform(0.0, 6.0))
    assert Keeper.open(campaign).verify(None).ok
