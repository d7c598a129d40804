"""What a person is told before a candidate is promoted."""

from types import SimpleNamespace
from typing import cast

import pytest

from inferproof.core.values import Outcome, Purpose
from inferproof.ledger.approvals import Subject
from inferproof.promotion import Court, earlier_failures

SEAL = 10
NAME = "rms_norm"
SUBJECT = Subject(action="promote", candidate="a" * 64, target="local")


def court(*jobs: tuple[int, str, Purpose, str, Outcome], tool: str = "check_numerics") -> Court:
    """Return a court before which these jobs came: (entry, candidate, purpose, gate, outcome)."""
    attempts = [
        (
            SimpleNamespace(
                job_id=str(seq), tool=tool, candidate=candidate, contract=NAME, purpose=purpose
            ),
            entry(seq),
        )
        for seq, candidate, purpose, _, _ in jobs
    ]
    outcomes = {
        str(seq): (SimpleNamespace(verdicts=(SimpleNamespace(gate=gate, outcome=outcome),)), None)
        for seq, _, _, gate, outcome in jobs
    }
    docket = SimpleNamespace(
        seal_in_force=lambda: entry(SEAL), attempts=lambda: attempts, outcome=outcomes.get
    )
    return cast("Court", SimpleNamespace(docket=docket))


def entry(seq: int) -> SimpleNamespace:
    return SimpleNamespace(seq=seq)


def test_each_earlier_failure_of_the_candidate_is_counted_by_gate() -> None:
    graded = (SUBJECT.candidate, Purpose.GRADED)
    told = earlier_failures(
        court(
            (11, *graded, "numerics", Outcome.FAIL),
            (12, *graded, "numerics", Outcome.FAIL),
            (13, *graded, "conduct", Outcome.FAIL),
        ),
        SUBJECT,
        NAME,
    )
    assert "conduct 1 times, numerics 2 times" in told


def test_a_promotion_that_failed_is_told_of_whichever_copy_of_the_candidate_it_was() -> None:
    failed = court((11, "b" * 64, Purpose.GRADED, "conduct", Outcome.FAIL), tool="promote")
    assert "conduct 1 times" in earlier_failures(failed, SUBJECT, NAME)
    assert earlier_failures(failed, SUBJECT, "another contract") == ""


@pytest.mark.parametrize(
    "job",
    [
        (11, SUBJECT.candidate, Purpose.GRADED, "speed", Outcome.FAIL),
        (11, SUBJECT.candidate, Purpose.GRADED, "numerics", Outcome.PASS),
        (11, SUBJECT.candidate, Purpose.PRACTICE, "numerics", Outcome.FAIL),
        (11, "b" * 64, Purpose.GRADED, "numerics", Outcome.FAIL),
        (9, SUBJECT.candidate, Purpose.GRADED, "numerics", Outcome.FAIL),
    ],
    ids=["slow", "passed", "practice", "another candidate", "an earlier seal"],
)
def test_nothing_else_is_held_against_it(job: tuple[int, str, Purpose, str, Outcome]) -> None:
    assert earlier_failures(court(job), SUBJECT, NAME) == ""
