"""Two keepers on one machine: who holds its GPU, in what order, and what that costs."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from inferproof.core.errors import UsageError
from inferproof.core.lease_facts import LeaseFacts
from inferproof.core.reports import JobReport
from inferproof.core.values import JobStatus, Purpose
from inferproof.hosts.local import Local
from inferproof.ledger.signing import ApproverKey
from inferproof.pipeline import Keeper
from inferproof.tools.facts import facts_of
from small_campaign import cpp_candidate, edit, sealed_on, small_campaign
from sshd import Sshd

pytestmark = pytest.mark.integration
WAIT_S = 60.0
BEAT_S = 5.0
HOLD = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 60")


def keeper_on_a_gpu(folder: Path, *, budget_h: float = 1.0) -> Keeper:
    """Return a keeper whose target has one GPU that all keepers of this test share."""
    root = small_campaign(folder)
    leases = str(folder.parent / "leases")
    target = {"host": "local", "gpus": ["fake-0"], "lease_dir": leases}
    (root / "targets.yaml").write_text(json.dumps({"local": target}), encoding="utf-8")
    edit(root / "campaign.yaml", {"budget: {": f"budget: {{accelerator_hours: {budget_h}, "})
    keeper = Keeper.open(root)
    keeper.seal(ApproverKey.create_demo(root / ".inferproof/demo-approver.pem"), "demo")
    return keeper


async def run(keeper: Keeper, *argv: str) -> str:
    started = await keeper.start(
        "run", candidate=None, target="local", purpose=Purpose.PRACTICE, argv=argv
    )
    return started.job_id


async def ended(keeper: Keeper, job_id: str) -> JobReport:
    return await keeper.follow(job_id, wait_s=WAIT_S)


async def until(seen: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not await seen():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def runs(keeper: Keeper, job_id: str) -> None:
    await until(lambda: _has_child(keeper, job_id))


async def _has_child(keeper: Keeper, job_id: str) -> bool:
    return _pids(keeper, job_id)[2] != "0"


def _pids(keeper: Keeper, job_id: str) -> list[str]:
    return (keeper.state_dir / "jobs" / job_id / "pid").read_text(encoding="utf-8").split()


def lease_of(keeper: Keeper, job_id: str) -> LeaseFacts:
    lease = keeper.evidence(job_id).lease
    assert lease is not None
    return lease


def test_a_command_sees_the_gpu_that_it_holds_and_the_campaign_is_charged_for_it(tmp_path: Path):
    keeper = keeper_on_a_gpu(tmp_path / "one")

    async def scenario() -> str:
        job_id = await run(keeper, "sh", "-c", "echo on $CUDA_VISIBLE_DEVICES")
        assert (await ended(keeper, job_id)).status is JobStatus.DONE
        return job_id

    job_id = asyncio.run(scenario())
    evidence, lease = keeper.evidence(job_id), lease_of(keeper, job_id)
    assert evidence.run is not None
    assert evidence.run.output_tail == "on fake-0\n"
    assert (lease.gpus, lease.mode, lease.is_over) == (("fake-0",), "shared", True)
    assert lease.tokens == {"fake-0": 1}
    assert lease.held_s >= evidence.run.seconds
    found = keeper.docket.outcome(job_id)
    assert found is not None
    assert found[0].accelerator_s == lease.accelerator_s == lease.held_s
    charged = [fact for fact in facts_of(evidence) if fact.name == "charged"]
    assert [fact.value for fact in charged] == [round(lease.held_s, 3)]
    assert "of 1 accelerator hours used" in asyncio.run(keeper.status()).summary
    assert keeper.verify(keeper.head()).ok


def test_an_altered_account_is_charged_in_full(tmp_path: Path):
    keeper = keeper_on_a_gpu(tmp_path / "one")

    async def scenario() -> str:
        job_id = await run(keeper, "true")
        host = Local(keeper.state_dir)
        await until(lambda: _is_over(host.state, job_id))
        account = await host.result_dir(job_id) / "lease.signed"
        edit(account, {'"is_over": true': '"is_over": true '})
        await ended(keeper, job_id)
        return job_id

    job_id = asyncio.run(scenario())
    assert lease_of(keeper, job_id).accelerator_s == 90


async def _is_over(state: Callable[[str], Awaitable[object]], job_id: str) -> bool:
    return "done" in str(await state(job_id))


def test_a_spent_budget_of_accelerators_starts_nothing_more(tmp_path: Path):
    keeper = keeper_on_a_gpu(tmp_path / "one", budget_h=1 / 3600)

    async def scenario() -> JobReport:
        job_id = await run(keeper, *HOLD)
        with pytest.raises(UsageError, match=r"promised to jobs .* have not ended"):
            await run(keeper, "true")
        return await ended(keeper, job_id)

    report = asyncio.run(scenario())
    assert "the 1 s that the campaign's accelerator budget leaves" in report.failure
    with pytest.raises(UsageError, match="accelerator hours is spent"):
        asyncio.run(run(keeper, "true"))
    assert 1 <= lease_of(keeper, report.job_id).accelerator_s < 1 + BEAT_S


def test_a_killed_supervisor_is_charged_up_to_its_next_heartbeat(tmp_path: Path):
    keeper = keeper_on_a_gpu(tmp_path / "one")

    async def scenario() -> tuple[str, float]:
        job_id = await run(keeper, *HOLD)
        await runs(keeper, job_id)
        os.kill(int(_pids(keeper, job_id)[0]), signal.SIGKILL)
        return job_id, time.monotonic()

    began = time.monotonic()
    job_id, killed = asyncio.run(scenario())
    assert asyncio.run(ended(keeper, job_id)).status is JobStatus.LOST
    lease = lease_of(keeper, job_id)
    assert not lease.is_over
    assert lease.held_s <= lease.accelerator_s == lease.held_s + BEAT_S <= killed - began + BEAT_S


@pytest.mark.zoo
def test_a_check_holds_its_gpu_alone_and_a_build_holds_none(tmp_path: Path):
    keeper = keeper_on_a_gpu(tmp_path / "one")
    candidate = keeper.submit_candidate(cpp_candidate(tmp_path / "candidate")).digest

    async def scenario() -> tuple[JobReport, JobReport]:
        jobs: list[JobReport] = []
        for tool in ("compile_kernel", "check_numerics"):
            started = await keeper.start(
                tool, candidate=candidate, target="local", purpose=Purpose.PRACTICE
            )
            jobs.append(await ended(keeper, started.job_id))
        return jobs[0], jobs[1]

    built, checked = asyncio.run(scenario())
    assert (built.status, checked.status) == (JobStatus.DONE, JobStatus.DONE)
    assert keeper.evidence(built.job_id).lease is None
    lease = lease_of(keeper, checked.job_id)
    assert (lease.gpus, lease.mode, lease.is_over) == (("fake-0",), "exclusive", True)
    assert keeper.verify(keeper.head()).ok


@pytest.mark.zoo
def test_two_servers_take_turns_on_one_gpu_of_a_machine_by_ssh(tmp_path: Path):
    """Each knows of the other only what the machine tells; the second waits, and then measures."""
    with Sshd(tmp_path / "sshd") as box:
        gpu = {"gpus": ["fake-0"], "lease_dir": str(tmp_path / "leases"), "threads": 1}
        one, other = (
            sealed_on(
                tmp_path / name,
                {"box": box.target(tmp_path / f"work-{name}", python=sys.executable, **gpu)},
            )
            for name in ("one", "other")
        )
        candidate = other.submit_candidate(cpp_candidate(tmp_path / "candidate")).digest

        async def scenario() -> tuple[str, str]:
            held = await one.start(
                "run", candidate=None, target="box", purpose=Purpose.PRACTICE, argv=HOLD
            )
            await until(lambda: _says(one, held.job_id, "running", ""))
            check = await other.start(
                "check_numerics", candidate=candidate, target="box", purpose=Purpose.PRACTICE
            )
            waits = f"place 1 in the queue for fake-0, held by {held.job_id}"
            await until(lambda: _says(other, check.job_id, "running", waits))
            assert (await one.cancel(held.job_id)).status is JobStatus.CANCELLED
            assert (await ended(other, check.job_id)).status is JobStatus.DONE
            return held.job_id, check.job_id

        first, second = asyncio.run(scenario())
    before, after = lease_of(one, first), lease_of(other, second)
    assert (before.tokens, after.tokens) == ({"fake-0": 1}, {"fake-0": 2})
    assert (before.mode, after.mode) == ("shared", "exclusive")
    assert after.waited_s > 0
    assert one.verify(one.head()).ok
    assert other.verify(other.head()).ok


async def _says(keeper: Keeper, job_id: str, status: str, words: str) -> bool:
    report = await keeper.report(job_id)
    return report.status.value == status and words in report.progress_message
