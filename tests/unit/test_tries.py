"""Tries: what was asked of a contract's speed before, and what does not count as a try."""

from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest

from inferproof.core.sealed import SealedContract
from inferproof.core.serving_facts import EarlierTries
from inferproof.core.values import Entry, JobStatus, Outcome, Purpose, Reason, Verdict
from inferproof.docket import Docket
from inferproof.ledger.bodies import Attempt, OutcomeOfJob
from inferproof.tries import earlier_tries

OURS, OTHERS = "a" * 64, "b" * 64


def entry(seq: int) -> Entry:
    return Entry(
        seq=seq, prev="0" * 64, at=datetime.now(UTC), body={}, digest="c" * 64, sig="0" * 128
    )


def attempt(number: int, **changes: object) -> Attempt:
    whole: dict[str, object] = {
        "job_id": f"job-{number}",
        "tool": "run_aiperf",
        "purpose": Purpose.GRADED,
        "candidate": OURS,
        "contract": "completions",
        "target": "local",
        "request_key": None,
    }
    return Attempt.model_validate(whole | changes)


def outcome(job_id: str, code: Reason, gate: str = "objectives") -> OutcomeOfJob:
    verdict = Verdict(
        gate=gate, gate_digest="d" * 64, outcome=Outcome.INCONCLUSIVE, code=code, reason=""
    )
    return OutcomeOfJob(
        job_id=job_id,
        status=JobStatus.DONE,
        evidence=None,
        verdicts=(verdict,),
        overall=Outcome.INCONCLUSIVE,
        failure=None,
    )


class Record:
    """Stands in for a docket: what was attempted, and what came of it."""

    def __init__(self, *jobs: tuple[Attempt, OutcomeOfJob | None]) -> None:
        self._jobs = jobs

    def attempts(self) -> Iterator[tuple[Attempt, Entry]]:
        for seq, (each, _) in enumerate(self._jobs):
            yield each, entry(seq + 1)

    def outcome(self, job_id: str) -> tuple[OutcomeOfJob, Entry] | None:
        found = next(ended for each, ended in self._jobs if each.job_id == job_id)
        return None if found is None else (found, entry(99))


def counted(
    *jobs: tuple[Attempt, OutcomeOfJob | None], seal: int = 0, kind: str = "service", **now: object
) -> EarlierTries | None:
    made = attempt(100, **now)
    contract = cast("SealedContract", SimpleNamespace(contract=SimpleNamespace(kind=kind)))
    named = contract if made.contract else None
    return earlier_tries(cast("Docket", Record(*jobs)), made, entry(seal), named)


def tried(
    number: int, code: Reason = Reason.NOT_FASTER, **changes: object
) -> tuple[Attempt, OutcomeOfJob]:
    made = attempt(number, **changes)
    return made, outcome(made.job_id, code)


@pytest.mark.parametrize(
    "other",
    [
        tried(0, Reason.NOT_MEASURED),
        tried(0, Reason.INFRASTRUCTURE),
        (attempt(0), outcome("job-0", Reason.WRONG_TOKENS, gate="fidelity")),
        (attempt(0), None),
    ],
    ids=["not measured", "the bench failed", "refused", "cancelled, or not settled yet"],
)
def test_a_try_counts_however_it_ended(other: tuple[Attempt, OutcomeOfJob | None]) -> None:
    assert counted(other) == EarlierTries(graded=1, final=0)


def test_what_is_asked_later_is_no_earlier_try_whichever_is_settled_first() -> None:
    jobs = [tried(0), (attempt(100), None), tried(1)]
    assert counted(*jobs) == EarlierTries(graded=1, final=0)


def test_every_try_on_the_contract_counts_whoevers_candidate_it_was() -> None:
    jobs = [tried(0), tried(1, Reason.ACCEPTED, candidate=OTHERS)]
    assert counted(*jobs) == EarlierTries(graded=2, final=0)


def test_a_kernels_speed_is_asked_for_by_every_graded_check_and_promotion() -> None:
    jobs = [
        tried(0, tool="check_numerics"),
        tried(1, tool="check_numerics", candidate=OTHERS),
        tried(2, tool="promote"),
        tried(3, tool="check_numerics", purpose=Purpose.PRACTICE),
        tried(4, tool="compile_kernel"),
    ]
    assert counted(*jobs, kind="kernel", tool="check_numerics") == EarlierTries(graded=3, final=0)


@pytest.mark.parametrize(
    "other",
    [
        tried(0, purpose=Purpose.PRACTICE),
        tried(0, contract="images"),
        tried(0, tool="check_numerics"),
    ],
)
def test_what_taught_nobody_anything_about_the_traffic_is_none(
    other: tuple[Attempt, OutcomeOfJob | None],
) -> None:
    assert counted(other) == EarlierTries(graded=0, final=0)


def test_a_new_seal_begins_anew() -> None:
    assert counted(tried(0), tried(1), seal=1) == EarlierTries(graded=1, final=0)


def test_final_tries_are_the_contracts_whichever_candidate_was_promoted() -> None:
    """A copy with another comment is another candidate, and no new try."""
    jobs = [tried(0, tool="promote"), tried(1, tool="promote", candidate=OTHERS), tried(2)]
    assert counted(*jobs, tool="promote") == EarlierTries(graded=3, final=2)
    assert counted(*jobs) == EarlierTries(graded=3, final=0)


def test_a_promotion_that_had_to_ask_for_the_final_traffic_is_a_try_all_the_same() -> None:
    jobs = [tried(0, tool="promote"), tried(1, Reason.FINAL_USED, tool="promote")]
    assert counted(*jobs, tool="promote") == EarlierTries(graded=2, final=2)


def test_an_open_try_is_not_counted_at_all() -> None:
    assert counted(tried(0), purpose=Purpose.PRACTICE) is None
    assert counted(tried(0), contract=None) is None
