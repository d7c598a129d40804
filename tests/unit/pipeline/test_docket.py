"""What the ledger says about seals, attempts and outcomes, and what becomes of lost jobs."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from inferproof import machines
from inferproof.core.campaign import Budget
from inferproof.core.errors import NotFound, SealBroken, UsageError
from inferproof.core.values import JobStatus, Purpose, utc_now
from inferproof.docket import Docket
from inferproof.ledger.bodies import Attempt, OutcomeOfJob, dump
from inferproof.ledger.store import Ledger
from inferproof.pipeline import Keeper
from inferproof.tools.spec import Call
from inferproof.tools.submit_candidate import submit_candidate
from small_campaign import cpp_candidate, sealed_keeper

ATTEMPT = Attempt(
    job_id="run-1",
    tool="run",
    purpose=Purpose.PRACTICE,
    candidate=None,
    contract=None,
    target="local",
    request_key=None,
)


def attempt(number: int, key: str | None = None) -> Attempt:
    return ATTEMPT.model_copy(update={"job_id": f"run-{number}", "request_key": key})


@pytest.fixture
def docket(tmp_path: Path) -> Docket:
    return Docket(Ledger.open(tmp_path), tmp_path)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path)


def test_nothing_is_in_force_before_a_seal(docket: Docket):
    assert docket.ruling_seal() is None
    with pytest.raises(SealBroken, match="not sealed"):
        docket.seal_in_force()


def test_the_budget_counts_attempts_and_not_repeats_of_a_request(docket: Docket):
    first, _ = docket.record(attempt(1, "key"), Budget(jobs=2))
    assert first is not None
    assert docket.record(attempt(2, "key"), Budget(jobs=1)) == (None, "run-1")
    assert docket.record(attempt(3), Budget(jobs=2))[0] is not None
    with pytest.raises(UsageError, match="budget of 2 jobs"):
        docket.record(attempt(4), Budget(jobs=2))
    assert [found.job_id for found, _ in docket.attempts()] == ["run-1", "run-3"]


def test_requests_without_a_key_are_never_the_same(docket: Docket):
    for number in range(3):
        assert docket.record(attempt(number), Budget(jobs=9))[1] == f"run-{number}"


def test_a_job_has_no_outcome_until_it_has_one(docket: Docket, ledger: Ledger):
    docket.record(ATTEMPT, Budget(jobs=1))
    assert docket.outcome("run-1") is None
    body = OutcomeOfJob(
        job_id="run-1",
        status=JobStatus.CANCELLED,
        evidence=None,
        verdicts=(),
        overall=None,
        failure="asked to stop",
    )
    ledger.append_outcome_once("run-1", dump(body))
    found = docket.outcome("run-1")
    assert found is not None
    assert found[0] == body
    with pytest.raises(NotFound, match="no evidence 'run-1'"):
        docket.evidence("run-1")
    with pytest.raises(NotFound, match="no job 'run-2'"):
        docket.attempt("run-2")


def attempted(keeper: Keeper, at: datetime) -> str:
    """Record an attempt of a server that died before it wrote the job's folder."""
    ledger = Ledger.open(keeper.state_dir, clock=lambda: at)
    Docket(ledger, keeper.root).record(ATTEMPT, Budget(jobs=9))
    return ATTEMPT.job_id


def test_a_job_whose_server_died_before_its_start_is_queued_and_then_lost(tmp_path: Path):
    young = sealed_keeper(tmp_path / "young")[0]
    report = asyncio.run(young.report(attempted(young, utc_now())))
    assert (report.status, report.entry) == (JobStatus.QUEUED, None)

    old = sealed_keeper(tmp_path / "old")[0]
    late = utc_now() - timedelta(seconds=machines.LAUNCH_GRACE_S + 1)
    job_id = attempted(old, late)
    first, second = (asyncio.run(old.report(job_id)) for _ in range(2))
    assert first == second
    assert first.status is JobStatus.LOST
    assert "died before it started" in first.failure
    assert len(tuple(old.ledger.entries("outcome"))) == 1
    assert old.verify(old.head()).ok


def test_a_candidate_is_recorded_once_and_its_entry_is_told(tmp_path: Path):
    keeper = sealed_keeper(tmp_path / "c")[0]
    folder = cpp_candidate(tmp_path / "candidate")
    call = Call(keeper=keeper, on_progress=None, server_is_ending=lambda: False)
    first, again = (asyncio.run(submit_candidate(call, str(folder))) for _ in range(2))
    (entry,) = keeper.ledger.entries("candidate")
    assert first.entry == again.entry == entry.digest
    with pytest.raises(NotFound):
        keeper.entry_of("0" * 64)
