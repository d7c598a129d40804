"""A cluster's queue as a target: Debian's own Slurm, two nodes with a made-up GPU each."""

import asyncio
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inferproof.cli import main
from inferproof.core.reports import JobReport
from inferproof.core.values import JobStatus, Outcome, Purpose
from inferproof.pipeline import Keeper
from inferproof_remote import processes, slurm, spool
from slurm_cluster import NODES, Cluster
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


async def running(keeper: Keeper, job_id: str, start: str = "") -> None:
    """Return once a job's first start, or the one of that name, has begun."""
    deadline = time.monotonic() + 40
    while not (first_folder(keeper, job_id) / start / "pid").exists():
        report = await keeper.report(job_id)
        assert time.monotonic() < deadline, report
        await asyncio.sleep(0.1)


async def ended(keeper: Keeper, job_id: str) -> JobReport:
    report = await keeper.follow(job_id, wait_s=120)
    assert report.status.is_final, report
    return report


async def begun_together(keeper: Keeper, *starts: Coroutine[object, object, str]) -> list[str]:
    """Return the ids of jobs that came while the queue was busy with others: one array."""
    place = keeper.root.parent / "work" / "queue"
    place.mkdir(parents=True)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * len(starts)))
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        starting = [asyncio.create_task(start) for start in starts]
        deadline = time.monotonic() + 60
        while len(list(place.glob("*.json"))) < len(starts):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
    ids = await asyncio.gather(*starting)
    numbers = [(first_folder(keeper, each) / "slurm").read_text() for each in ids]
    assert len({number.partition("_")[0] for number in numbers}) == 1
    assert {number.partition("_")[2] for number in numbers} == set(map(str, range(len(ids))))
    return ids


def first_folder(keeper: Keeper, job_id: str) -> Path:
    return keeper.root.parent / "work" / "jobs" / job_id


def folder_of(keeper: Keeper, job_id: str) -> Path:
    """Return the folder of a job's present start."""
    first = first_folder(keeper, job_id)
    return first / spool.AGAIN if (first / spool.AGAIN).exists() else first


def environment_of(folder: Path) -> bytes:
    """Return what the supervisor of a job was started with."""
    pid = (folder / "pid").read_text().split()[0]
    return Path("/proc", pid, "environ").read_bytes()


def node_of(keeper: Keeper, job_id: str) -> str:
    return (folder_of(keeper, job_id) / "node").read_text()


def printed(keeper: Keeper, report: JobReport) -> str:
    assert report.status is JobStatus.DONE, report
    facts = keeper.evidence(report.job_id).run
    assert facts is not None
    return facts.output_tail


def on_record_once(keeper: Keeper, count: int) -> None:
    ids = [str(entry.body["job_id"]) for entry in keeper.ledger.entries("outcome")]
    assert len(ids) == len(set(ids)) == count
    assert keeper.verify(keeper.head()).ok


def test_a_zoo_of_kernels_is_one_array_and_each_is_judged_for_itself(
    tmp_path: Path, keeper: Keeper
):
    folders = [
        cpp_candidate(tmp_path / "good"),
        python_candidate(tmp_path / "wrong", WRONG),
        cpp_candidate(
            tmp_path / "half", lambda text: text.replace("t < tokens;", "t < tokens / 2;")
        ),
    ]

    async def check(folder: Path) -> str:
        candidate = keeper.submit_candidate(folder).digest
        started = await keeper.start(
            "check_numerics", candidate=candidate, target="farm", purpose=Purpose.GRADED
        )
        return started.job_id

    async def all_of_them() -> list[JobReport]:
        ids = await begun_together(keeper, *map(check, folders))
        return [await ended(keeper, job_id) for job_id in ids]

    good, *bad = asyncio.run(all_of_them())
    assert good.overall in (Outcome.PASS, Outcome.APPROVAL_REQUIRED)
    assert [report.overall for report in bad] == [Outcome.FAIL, Outcome.FAIL]
    on_record_once(keeper, 3)


def test_jobs_that_come_together_are_one_array_that_gives_no_gpu_to_two(keeper: Keeper):
    shell = "date +%s.%N; sleep 0.5; date +%s.%N"

    async def all_of_them() -> list[JobReport]:
        few = [begun(keeper, "sh", "-c", shell) for _ in range(MANY - 1)]
        ids = await begun_together(keeper, *few, begun(keeper, "sleep", "40"))
        waiting = [await keeper.report(job_id) for job_id in ids]
        assert any("waits in Slurm's queue" in report.progress_message for report in waiting)
        called_off = await keeper.cancel(ids.pop())
        assert called_off.status is JobStatus.CANCELLED
        return [await ended(keeper, job_id) for job_id in ids]

    times: list[tuple[float, int]] = []
    for report in asyncio.run(all_of_them()):
        start, end = map(float, printed(keeper, report).split())
        times += [(start, 1), (end, -1)]
    at_once, most = 0, 0
    for _, step in sorted(times):
        at_once += step
        most = max(most, at_once)
    assert most <= len(NODES)
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


def test_what_a_failed_node_ends_is_started_again_elsewhere_and_both_starts_are_on_record(
    keeper: Keeper, cluster: Cluster
):
    async def scenario() -> tuple[JobReport, str]:
        job_id = await begun(keeper, "sh", "-c", "sleep 3; echo done")
        await running(keeper, job_id)
        node = node_of(keeper, job_id)
        with cluster.down(node):
            return await ended(keeper, job_id), node

    report, node = asyncio.run(scenario())
    assert printed(keeper, report) == "done\n"
    first, second = keeper.evidence(report.job_id).starts
    assert (first.node, first.is_fault, first.number) != (second.node, True, second.number)
    assert f"on {node}: NODE_FAIL, the machine failed, not the job" in first.ended
    assert {first.node, second.node} == set(NODES)
    assert processes.with_environment("INFERPROOF_JOB", report.job_id) == []
    on_record_once(keeper, 1)


def test_a_first_start_that_lives_on_unseen_changes_nothing_of_the_second(
    keeper: Keeper, cluster: Cluster
):
    async def scenario() -> tuple[JobReport, int]:
        job_id = await begun(keeper, "sh", "-c", "date +%s%N; sleep 5")
        await running(keeper, job_id)
        rc = first_folder(keeper, job_id) / "rc"
        with cluster.down(node_of(keeper, job_id), cut_off=True):
            since_ns = time.time_ns()
            while not rc.exists():
                report = await keeper.report(job_id)
                assert not report.status.is_final, report
                await asyncio.sleep(0.1)
            assert rc.read_text() == "0\n"
            assert not (await keeper.report(job_id)).status.is_final
            return await ended(keeper, job_id), since_ns

    report, since_ns = asyncio.run(scenario())
    assert int(printed(keeper, report)) > since_ns
    on_record_once(keeper, 1)


def test_a_job_whose_two_nodes_fail_is_the_machines_fault_and_starts_no_third_time(
    keeper: Keeper, cluster: Cluster
):
    async def scenario() -> JobReport:
        job_id = await begun(keeper, "sleep", "25")
        await running(keeper, job_id)
        with cluster.down(node_of(keeper, job_id)):
            await running(keeper, job_id, spool.AGAIN)
            with cluster.down(node_of(keeper, job_id)):
                return await ended(keeper, job_id)

    report = asyncio.run(scenario())
    assert (report.status, report.overall) == (JobStatus.INFRA, None)
    assert "NODE_FAIL, the machine failed, not the job" in report.failure
    starts = keeper.evidence(report.job_id).starts
    assert [start.is_fault for start in starts] == [True, True]
    assert {start.node for start in starts} == set(NODES)
    assert processes.with_environment("INFERPROOF_JOB", report.job_id) == []
    on_record_once(keeper, 1)


def test_a_job_that_gives_way_to_an_urgent_one_is_started_again(keeper: Keeper, cluster: Cluster):
    async def scenario() -> JobReport:
        job_id = await begun(keeper, "sh", "-c", "sleep 3; echo done")
        await running(keeper, job_id)
        quiet = ("--output=/dev/null", "--chdir=/", "--wrap", "sleep 2")
        cluster.run("sbatch", "-p", "urgent", "-N2", "--exclusive", *quiet)
        return await ended(keeper, job_id)

    report = asyncio.run(scenario())
    assert printed(keeper, report) == "done\n"
    first, second = keeper.evidence(report.job_id).starts
    assert "PREEMPTED, the machine failed, not the job" in first.ended
    assert not second.is_fault
    on_record_once(keeper, 1)


@pytest.mark.parametrize("arrives", [True, False])
def test_a_job_that_sbatch_took_in_silence_is_found_by_its_name_or_handed_over_again(
    keeper: Keeper,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arrives: bool,
):
    del cluster
    real, once = shutil.which("sbatch"), tmp_path / "asked"
    monkeypatch.setattr(slurm, "_ANSWERS_S", 2.0)
    monkeypatch.setattr(spool, "_ARRIVES_S", 4.0)
    hangs = f'{real if arrives else "cat"} "$@" >/dev/null 2>&1; exec sleep 30'
    silent = tmp_path / "bin" / "sbatch"
    silent.parent.mkdir()
    silent.write_text(f'#!/bin/sh\nmkdir {once} && {{ {hangs}; }}\nexec {real} "$@"\n')
    silent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{silent.parent}:{os.environ['PATH']}")

    async def scenario() -> JobReport:
        return await ended(keeper, await begun(keeper, "echo", "done"))

    report = asyncio.run(scenario())
    assert printed(keeper, report) == "done\n"
    assert len(keeper.evidence(report.job_id).starts) == 1
    on_record_once(keeper, 1)


def test_nothing_of_the_servers_environment_reaches_a_node(
    keeper: Keeper, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TOKEN_OF_THE_SERVER", "secret")
    monkeypatch.setenv("SBATCH_PARTITION", "cpu")

    async def scenario() -> tuple[bytes, str]:
        job_id = await begun(keeper, "sleep", "25")
        await running(keeper, job_id)
        seen = environment_of(folder_of(keeper, job_id))
        where = cluster.run("squeue", "-h", "-o", "%P").strip()
        await keeper.cancel(job_id)
        return seen, where

    environment, partition = asyncio.run(scenario())
    assert b"SLURMD_NODENAME" in environment
    assert b"TOKEN_OF_THE_SERVER" not in environment
    assert partition == "gpu"


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
