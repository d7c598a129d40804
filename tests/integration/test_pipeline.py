"""The keeper from a submitted folder to a champion that verifies, with real jobs."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from inferproof.core.errors import InferproofError, NotFound, SealBroken, UsageError
from inferproof.core.reports import JobReport, PromotionReport, Started, ToolName
from inferproof.core.values import JobStatus, Outcome, Purpose, Reason
from inferproof.hosts.base import JobState, follow
from inferproof.hosts.local import Local
from inferproof.ledger.signing import ApproverKey
from inferproof.pipeline import Keeper
from inferproof_remote.jobs import Jobs
from small_campaign import (
    CONTRACT_FILE,
    MANIFEST,
    WRONG,
    cpp_candidate,
    edit,
    python_candidate,
    sealed_keeper,
    small_campaign,
)

WAIT_S = 90.0
GOOD = (Outcome.PASS, Outcome.APPROVAL_REQUIRED)


def start(
    keeper: Keeper,
    tool: ToolName,
    candidate: str | None = None,
    *,
    purpose: Purpose = Purpose.PRACTICE,
    target: str = "local",
    request_key: str | None = None,
    argv: tuple[str, ...] = (),
) -> Started:
    return asyncio.run(
        keeper.start(
            tool,
            candidate=candidate,
            target=target,
            purpose=purpose,
            request_key=request_key,
            argv=argv,
        )
    )


def finished(keeper: Keeper, started: Started) -> JobReport:
    report = asyncio.run(keeper.follow(started.job_id, wait_s=WAIT_S))
    assert report.status.is_final, report
    return report


def done(
    keeper: Keeper, tool: ToolName, candidate: str | None = None, *, argv: tuple[str, ...] = ()
) -> JobReport:
    report = finished(keeper, start(keeper, tool, candidate, argv=argv))
    assert report.status is JobStatus.DONE, report
    return report


def promote(keeper: Keeper, candidate: str) -> PromotionReport:
    return asyncio.run(keeper.promote(candidate, target="local", wait_s=WAIT_S))


def champion(keeper: Keeper) -> str | None:
    return asyncio.run(keeper.status()).components[0].champion


def sound(keeper: Keeper) -> None:
    report = Keeper.open(keeper.root).verify(keeper.head())
    assert report.ok, report.findings


@pytest.fixture
def sealed(tmp_path: Path) -> Keeper:
    return sealed_keeper(tmp_path / "campaign")[0]


def test_a_candidate_becomes_champion_by_proof_and_a_persons_yes_and_all_of_it_verifies(
    tmp_path: Path,
):
    keeper, key = sealed_keeper(tmp_path / "campaign")
    candidate = keeper.submit_candidate(cpp_candidate(tmp_path / "kernel")).digest
    assert keeper.submit_candidate(tmp_path / "kernel").digest == candidate
    assert len(tuple(keeper.ledger.entries("candidate"))) == 1

    done(keeper, "compile_kernel", candidate)
    again = start(keeper, "compile_kernel", candidate)
    assert not (keeper.state_dir / "jobs" / again.job_id).exists(), "a known build ran once more"
    assert finished(keeper, again).overall is Outcome.PASS

    practice = done(keeper, "check_numerics", candidate)
    assert keeper.evidence(practice.job_id).purpose is Purpose.PRACTICE
    first = finished_promotion(keeper, candidate)
    assert champion(keeper) is None
    assert first.approval_id is not None
    asked_again = promote(keeper, candidate)
    assert (asked_again.approval_id, job_of(asked_again)) == (first.approval_id, job_of(first))

    keeper.approve(keeper.find_request(first.approval_id), key)
    moved = promote(keeper, candidate)
    assert (moved.outcome, moved.code) == (Outcome.PASS, Reason.ACCEPTED)
    assert champion(keeper) == candidate
    sound(keeper)

    anew = finished_promotion(keeper, candidate)
    assert job_of(anew) != job_of(first), "a spent proof was used twice"
    assert anew.approval_id != first.approval_id
    sound(keeper)


def job_of(report: PromotionReport) -> str:
    assert report.job is not None
    return report.job.job_id


def finished_promotion(keeper: Keeper, candidate: str) -> PromotionReport:
    """Ask for a promotion until noise lets the chain end in a question to a person."""
    for _ in range(3):
        report = promote(keeper, candidate)
        if report.outcome is Outcome.APPROVAL_REQUIRED:
            return report
        assert report.code in (Reason.BELOW_RESOLUTION, Reason.NOT_FASTER), report
    raise AssertionError("no promotion out of 3 was measured well enough to be asked for")


def test_a_wrong_candidate_fails_and_cannot_be_promoted(sealed: Keeper, tmp_path: Path):
    candidate = sealed.submit_candidate(python_candidate(tmp_path / "kernel", WRONG)).digest
    refused = promote(sealed, candidate)
    assert refused.outcome is Outcome.FAIL
    assert refused.approval_id is None
    assert champion(sealed) is None
    assert sealed.evidence(job_of(refused)).arming is None
    sound(sealed)


def test_run_is_recorded_as_practice_and_never_judged(sealed: Keeper):
    report = done(sealed, "run", argv=("echo", "seen"))
    assert (report.overall, report.verdicts) == (None, ())
    evidence = sealed.evidence(report.job_id)
    assert evidence.purpose is Purpose.PRACTICE
    assert evidence.run is not None
    assert evidence.run.output_tail == "seen\n"
    assert report.evidence is not None
    assert sealed.evidence(report.evidence) == evidence
    sound(sealed)


def test_a_running_keeper_starts_only_its_own_bench_code(sealed: Keeper):
    done(sealed, "run", argv=("true",))
    cached = next((sealed.state_dir / "cache").glob("*.pyz"))
    cached.write_bytes(b"raise SystemExit(0)\n")
    done(sealed, "run", argv=("true",))
    cached.unlink()
    done(sealed, "run", argv=("true",))


@pytest.mark.parametrize("file", ["result.json", "result.hmac"])
def test_a_result_changed_before_it_was_settled_is_no_evidence(sealed: Keeper, file: str):
    started = start(sealed, "run", argv=("echo", "measured"))
    out = sealed.state_dir / "jobs" / started.job_id / "out"
    states = asyncio.run(until_over(sealed, started))
    assert states[-1].status is JobStatus.DONE
    forged = (out / file).read_bytes().replace(b"measured", b"invented")
    (out / file).write_bytes(forged if file == "result.json" else b"0" * 64)
    report = finished(sealed, started)
    assert report.status is JobStatus.FAILED
    assert "not the one that its supervisor signed" in report.failure
    assert sealed.evidence(report.job_id).run is None
    sound(sealed)


@pytest.mark.parametrize("restored", [False, True])
def test_a_job_exchanged_before_its_supervisor_read_it_gives_no_evidence(
    sealed: Keeper, monkeypatch: pytest.MonkeyPatch, restored: bool
):
    write = getattr(Jobs, "_write")  # noqa: B009 (private: where an agent would reach in)
    before: list[bytes] = []

    def write_and_exchange(
        jobs: Jobs, folder: Path, asked: object, inputs: Mapping[str, str]
    ) -> bool:
        write(jobs, folder, asked, inputs)
        before.append((folder / "job.json").read_bytes())
        (folder / "job.json").write_bytes(before[0].replace(b"measured", b"invented"))
        return True

    monkeypatch.setattr(Jobs, "_write", write_and_exchange)
    started = start(sealed, "run", argv=("echo", "measured"))
    states = asyncio.run(until_over(sealed, started))
    assert states[-1].status is JobStatus.DONE
    folder = sealed.state_dir / "jobs" / started.job_id
    assert b"invented" in (folder / "out" / "result.json").read_bytes()
    if restored:
        (folder / "job.json").write_bytes(before[0])
    report = finished(sealed, started)
    assert report.status is JobStatus.FAILED
    assert "for what was asked" in report.failure
    assert sealed.evidence(report.job_id).run is None
    sound(sealed)


async def until_over(keeper: Keeper, started: Started) -> list[JobState]:
    """Watch a job as the agent could, without settling it."""
    return [state async for state in follow(Local(keeper.state_dir), started.job_id, wait_s=30)]


def test_evidence_of_an_open_or_unknown_job_is_not_found(sealed: Keeper):
    started = start(sealed, "run", argv=("sleep", "60"))
    for ref in (started.job_id, "nothing", "0" * 64):
        with pytest.raises(NotFound):
            sealed.evidence(ref)
    assert asyncio.run(sealed.cancel(started.job_id)).status is JobStatus.CANCELLED
    assert asyncio.run(sealed.cancel(started.job_id)).status is JobStatus.CANCELLED
    assert len(tuple(sealed.ledger.entries("outcome"))) == 1
    sound(sealed)


def test_a_request_key_starts_one_job_however_many_ask(sealed: Keeper):
    def ask(_: int) -> Started:
        return start(Keeper.open(sealed.root), "run", request_key="once", argv=("true",))

    with ThreadPoolExecutor(4) as pool:
        answers = tuple(pool.map(ask, range(4)))
    assert len({answer.job_id for answer in answers}) == 1
    assert sum(answer.is_new for answer in answers) == 1
    assert len(tuple(sealed.ledger.entries("attempt"))) == 1
    assert len(tuple((sealed.state_dir / "jobs").iterdir())) == 1
    finished(sealed, answers[0])
    assert not start(sealed, "run", request_key="once", argv=("true",)).is_new
    sound(sealed)


def test_a_spent_budget_refuses_further_jobs(tmp_path: Path):
    folder = small_campaign(tmp_path / "campaign")
    edit(folder / "campaign.yaml", {"jobs: 1000": "jobs: 1"})
    keeper = Keeper.open(folder)
    keeper.seal(ApproverKey.create_demo(tmp_path / "key.pem"), "demo")
    finished(keeper, start(keeper, "run", request_key="first", argv=("true",)))
    head = keeper.head()
    with pytest.raises(UsageError, match="budget of 1 jobs is spent"):
        start(keeper, "run", argv=("true",))
    assert keeper.head() == head
    assert not start(keeper, "run", request_key="first", argv=("true",)).is_new
    assert "budget is spent" in " ".join(asyncio.run(keeper.status()).next_steps)


def test_an_unknown_target_or_candidate_starts_nothing(sealed: Keeper):
    head = sealed.head()
    with pytest.raises(NotFound, match="no target 'moon'"):
        start(sealed, "run", target="moon", argv=("true",))
    with pytest.raises(NotFound):
        start(sealed, "check_numerics", "ab" * 32)
    with pytest.raises(UsageError, match="needs a candidate"):
        start(sealed, "check_numerics")
    assert sealed.head() == head


@pytest.mark.parametrize("file", ["campaign.yaml", "targets.yaml", CONTRACT_FILE])
def test_a_changed_sealed_file_is_refused_by_name(sealed: Keeper, file: str, tmp_path: Path):
    with (sealed.root / file).open("a", encoding="utf-8") as stream:
        stream.write("# changed\n")
    folder = python_candidate(tmp_path / "kernel")
    acts: tuple[Callable[[], object], ...] = (
        sealed.sealed,
        lambda: sealed.submit_candidate(folder),
        lambda: start(sealed, "run", argv=("true",)),
    )
    for act in acts:
        with pytest.raises(SealBroken, match=file):
            act()
    assert not Keeper.open(sealed.root).verify(None).ok


def test_a_candidate_for_a_contract_that_the_campaign_lacks_is_refused(
    sealed: Keeper, tmp_path: Path
):
    folder = python_candidate(
        tmp_path / "kernel", manifest=MANIFEST.replace("contract: rms_norm", "contract: softmax")
    )
    with pytest.raises(SealBroken, match="no contract 'softmax'"):
        sealed.submit_candidate(folder)
    assert list(sealed.ledger.entries("candidate")) == []


def test_a_job_that_cannot_be_launched_is_on_record(tmp_path: Path):
    folder = small_campaign(tmp_path / "campaign")
    edit(folder / "targets.yaml", {"python: null": "python: /nowhere/python3"})
    keeper = Keeper.open(folder)
    keeper.seal(ApproverKey.create_demo(tmp_path / "key.pem"), "demo")
    candidate = keeper.submit_candidate(python_candidate(tmp_path / "kernel")).digest
    asked = (start(keeper, "run", argv=("true",)), start(keeper, "check_numerics", candidate))
    for started in asked:
        report = finished(keeper, started)
        assert report.status is JobStatus.INFRA
        assert "/nowhere/python3" in report.failure
        assert report.overall is None
    assert len(tuple(keeper.ledger.entries("outcome"))) == 2
    sound(keeper)


def test_what_was_judged_under_an_amended_seal_still_verifies(tmp_path: Path):
    keeper, key = sealed_keeper(tmp_path / "campaign")
    candidate = keeper.submit_candidate(python_candidate(tmp_path / "kernel", WRONG)).digest
    before = done(keeper, "compile_kernel", candidate)
    open_job = start(keeper, "compile_kernel", candidate)
    edit(keeper.root / CONTRACT_FILE, {"pairs: 6": "pairs: 7"})
    with pytest.raises(SealBroken):
        keeper.sealed()
    keeper.seal(key, "demo")
    assert finished(keeper, open_job).overall is Outcome.PASS
    after = done(keeper, "compile_kernel", candidate)
    seals = {keeper.evidence(job.job_id).seal for job in (before, after)}
    contracts = {keeper.evidence(job.job_id).contract for job in (before, after)}
    assert (len(seals), len(contracts)) == (2, 2)
    sound(keeper)


def test_a_stranger_cannot_amend_the_seal(sealed: Keeper, tmp_path: Path):
    head = sealed.head()
    with pytest.raises(InferproofError, match="another approver key"):
        sealed.seal(ApproverKey.create_demo(tmp_path / "other.pem"), "demo")
    assert sealed.head() == head


def test_a_note_reaches_the_status_and_an_empty_one_is_refused(sealed: Keeper):
    sealed.note("look at the tail of the vector loop")
    assert "look at the tail" in str(asyncio.run(sealed.status()).model_dump())
    with pytest.raises(UsageError):
        sealed.note("  ")
    sound(sealed)
