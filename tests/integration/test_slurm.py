"""A cluster's queue as a target: Debian's own Slurm, two nodes with a made-up GPU each."""

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferproof.cli import main
from inferproof.core.reports import JobReport
from inferproof.core.values import JobStatus, Outcome, Purpose
from inferproof.pipeline import Keeper
from inferproof_remote import processes
from slurm_cluster import Cluster
from small_campaign import WRONG, cpp_candidate, python_candidate, sealed_on

pytestmark = [pytest.mark.zoo, pytest.mark.timeout(300)]
MANY = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("slurm")) as made:
        os.environ["SLURM_CONF"] = str(made.config)
        yield made
        del os.environ["SLURM_CONF"]


@pytest.fixture
def keeper(tmp_path: Path, cluster: Cluster) -> Keeper:
    cluster.until_idle()
    queue = {"partition": "gpu", "compile_partition": "cpu", "gres": "gpu:1"}
    farm = {
        "host": "slurm",
        "work": str(tmp_path / "work"),
        "python": sys.executable,
        "threads": 1,
        "slurm": queue,
    }
    return sealed_on(tmp_path / "campaign", {"farm": farm})


async def begun(keeper: Keeper, *argv: str) -> str:
    started = await keeper.start(
        "run", candidate=None, target="farm", purpose=Purpose.PRACTICE, argv=argv
    )
    return started.job_id


async def running(keeper: Keeper, job_id: str) -> JobReport:
    deadline = time.monotonic() + 40
    while (report := await keeper.report(job_id)).status is JobStatus.QUEUED:
        assert time.monotonic() < deadline, report
        await asyncio.sleep(0.1)
    return report


async def ended(keeper: Keeper, job_id: str) -> JobReport:
    report = await keeper.follow(job_id, wait_s=120)
    assert report.status.is_final, report
    return report


def on_record_once(keeper: Keeper, count: int) -> None:
    ids = [str(entry.body["job_id"]) for entry in keeper.ledger.entries("outcome")]
    assert len(ids) == len(set(ids)) == count
    assert keeper.verify(keeper.head()).ok


def test_a_kernel_is_judged_on_the_cluster(tmp_path: Path, keeper: Keeper):
    async def checked(candidate: str) -> JobReport:
        started = await keeper.start(
            "check_numerics", candidate=candidate, target="farm", purpose=Purpose.GRADED
        )
        return await ended(keeper, started.job_id)

    good = keeper.submit_candidate(cpp_candidate(tmp_path / "good")).digest
    wrong = keeper.submit_candidate(python_candidate(tmp_path / "wrong", WRONG)).digest
    assert asyncio.run(checked(good)).overall in (Outcome.PASS, Outcome.APPROVAL_REQUIRED)
    assert asyncio.run(checked(wrong)).overall is Outcome.FAIL
    on_record_once(keeper, 2)


def test_many_jobs_wait_their_turn_and_no_gpu_has_two(keeper: Keeper):
    async def all_of_them() -> list[JobReport]:
        shell = "date +%s.%N; sleep 0.5; date +%s.%N"
        ids = [await begun(keeper, "sh", "-c", shell) for _ in range(MANY)]
        waiting = [await keeper.report(job_id) for job_id in ids]
        assert "waits in Slurm's queue" in waiting[-1].progress_message
        return [await ended(keeper, job_id) for job_id in ids]

    times: list[tuple[float, int]] = []
    for report in asyncio.run(all_of_them()):
        assert report.status is JobStatus.DONE, report
        facts = keeper.evidence(report.job_id).run
        assert facts is not None
        start, end = map(float, facts.output_tail.split())
        times += [(start, 1), (end, -1)]
    at_once, most = 0, 0
    for _, step in sorted(times):
        at_once += step
        most = max(most, at_once)
    assert most <= 2
    on_record_once(keeper, MANY)


@pytest.mark.parametrize("waits", [True, False])
def test_cancel_takes_a_job_out_of_the_queue_or_off_its_node(
    keeper: Keeper, cluster: Cluster, waits: bool
):
    async def scenario() -> tuple[str, JobReport]:
        before = [await begun(keeper, "sleep", "25") for _ in range(2)] if waits else []
        for job_id in before:
            await running(keeper, job_id)
        job_id = await begun(keeper, "sleep", "26")
        if not waits:
            await running(keeper, job_id)
        report = await keeper.cancel(job_id)
        for other in before:
            await keeper.cancel(other)
        return job_id, report

    job_id, report = asyncio.run(scenario())
    assert report.status is JobStatus.CANCELLED
    assert processes.with_environment("INFERPROOF_JOB", job_id) == []
    assert cluster.run("squeue", "-h", "-t", "PD,R").split() == []
    on_record_once(keeper, 3 if waits else 1)


def test_a_node_that_goes_down_is_no_fault_of_the_job_and_another_one_takes_it(
    keeper: Keeper, cluster: Cluster
):
    async def scenario() -> tuple[JobReport, JobReport, str]:
        job_id = await begun(keeper, "sleep", "25")
        await running(keeper, job_id)
        number = (keeper.root.parent / "work" / "jobs" / job_id / "slurm").read_text()
        found = re.search(r" NodeList=(\w+)", cluster.run("scontrol", "-o", "show", "job", number))
        assert found is not None
        node = found[1]
        cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
        lost = await ended(keeper, job_id)
        again = await ended(keeper, await begun(keeper, "echo", "done"))
        cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        return lost, again, node

    lost, again, node = asyncio.run(scenario())
    assert (lost.status, lost.overall) == (JobStatus.INFRA, None)
    assert f"on {node}: NODE_FAIL, the machine failed, not the job" in lost.failure
    assert again.status is JobStatus.DONE
    assert processes.with_environment("INFERPROOF_JOB", lost.job_id) == []
    on_record_once(keeper, 2)


def test_a_queue_that_refuses_says_why(tmp_path: Path, cluster: Cluster):
    del cluster
    farm = {"host": "slurm", "work": str(tmp_path / "work"), "python": sys.executable}
    queue = {"partition": "nowhere"}
    keeper = sealed_on(tmp_path / "campaign", {"farm": {**farm, "threads": 1, "slurm": queue}})
    report = asyncio.run(keeper.report(asyncio.run(begun(keeper, "true"))))
    assert report.status is JobStatus.INFRA
    assert "invalid partition" in report.failure


def test_doctor_examines_a_cluster(keeper: Keeper, capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--target", "farm", "--campaign", str(keeper.root)]) == 0
    told = capsys.readouterr().out
    assert "found    Slurm: gpu*: 2 idle, gpu:1" in told
    assert told.endswith("checks can run on target farm\n")
