"""A candidate answers the contract's tasks no worse than the baseline, or that is not proved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferproof.core.values import Verdict
from inferproof.gates.tasks import TasksDone, compare, mcnemar, pairs_needed, unseen_share
from unit.gates.serving_cases import BITS, CONTRACT, DIGEST, case

TASKS = 60
WORDS = {
    "r": "right",
    "w": "wrong",
    "a": "absent",
    "u": "unscored",
    "f": "failed",
    "n": "unanswered",
    "t": "undecided",
}


def judged(
    candidate: str, baseline: str, *, purpose: str = "practice", choices: int = 0, **rules: object
) -> Verdict:
    """Judge answers written as letters: the first of each word, `n` none, `t` out of time.

    The first `choices` tasks are multiple choice.
    """
    tables = [
        {
            "arm": arm,
            "restart": 0,
            "ids": [f"task-{number}" for number in range(len(letters))],
            "kinds": ["choice" if number < choices else "exact" for number in range(len(letters))],
            "results": [WORDS[each] for each in letters],
            "digests": [DIGEST] * len(letters),
            "seconds": 1.0,
        }
        for arm, letters in (("candidate", candidate), ("baseline", baseline))
        if letters
    ]
    about = case(purpose=purpose)
    body = about.model_dump(mode="json")
    asked = {"file": "tasks.jsonl", "margin": 0.1, **rules}
    body["contract"] = CONTRACT.model_dump(mode="json") | {"tasks": asked}
    body["evidence"]["serve"]["tasks"] = tables
    return TasksDone().judge(type(about).model_validate(body))


def said(
    candidate: str, baseline: str, *, margin: float = 0.1, choices: int = 0
) -> tuple[str, str]:
    verdict = judged(candidate, baseline, margin=margin, choices=choices)
    return verdict.outcome.value, verdict.code.value


def test_the_same_answers_pass_where_tasks_are_enough_for_the_margin() -> None:
    answers = "r" * 40 + "w" * 20
    assert said(answers, answers) == ("pass", "accepted")
    assert said(answers, answers, margin=0.03) == ("inconclusive", "below_resolution")
    assert said(answers[:20], answers[:20]) == ("inconclusive", "below_resolution")


def test_a_better_candidate_passes() -> None:
    assert said("r" * 50 + "w" * 10, "r" * 40 + "w" * 20) == ("pass", "accepted")


def test_many_flips_to_wrong_are_refused_and_listed() -> None:
    verdict = judged("w" * 20 + "r" * 40, "r" * TASKS)
    assert (verdict.outcome.value, verdict.code.value) == ("fail", "worse_answers")
    assert "task-0, task-1" in verdict.reason
    assert "and 10 more" in verdict.reason


def test_a_private_file_gives_counts_and_no_id() -> None:
    reason = judged("w" * 20 + "r" * 40, "r" * TASKS, private=True).reason
    assert "20 lost" in reason
    assert "task-" not in reason


def test_a_graded_verdict_gives_neither_shares_nor_ids() -> None:
    reason = judged("w" * 20 + "r" * 40, "r" * TASKS, purpose="graded").reason
    assert "task-" not in reason
    assert "%" not in reason


def test_a_loss_that_chance_explains_is_not_decided() -> None:
    assert said("w" * 8 + "r" * 52, "r" * 55 + "w" * 5)[0] == "inconclusive"


def test_errors_where_the_baseline_answers_are_refused() -> None:
    assert said("f" + "r" * 59, "r" * TASKS) == ("fail", "requests_failed")
    assert said("a" + "r" * 59, "r" * TASKS) == ("fail", "requests_failed")
    assert said("r" * 59, "r" * TASKS) == ("fail", "requests_failed")


@pytest.mark.parametrize("letter", ["n", "t"])
def test_what_was_not_answered_or_not_read_is_not_measured(letter: str) -> None:
    assert said(letter + "r" * 59, "r" * TASKS) == ("inconclusive", "not_measured")
    assert said("r" * TASKS, letter + "r" * 59) == ("inconclusive", "not_measured")


def test_a_baseline_that_fails_is_not_held_against_the_candidate() -> None:
    assert said("r" * TASKS, "f" + "r" * 59) == ("inconclusive", "not_measured")


def test_tasks_that_one_arm_cannot_be_asked_are_left_out() -> None:
    assert said("u" * 5 + "r" * 60, "r" * 65) == ("pass", "accepted")
    assert said("u" * 60, "r" * 60) == ("inconclusive", "not_measured")


def test_scores_that_are_given_for_some_choices_and_withheld_for_others_are_refusals() -> None:
    assert said("u" * 5 + "r" * 60, "r" * 65, choices=5) == ("pass", "accepted")
    assert said("u" * 5 + "r" * 60, "r" * 65, choices=6) == ("fail", "requests_failed")


@pytest.mark.parametrize(("candidate", "baseline"), [("", "r" * 60), ("r" * 60, ""), ("", "")])
def test_one_arm_alone_proves_nothing(candidate: str, baseline: str) -> None:
    assert said(candidate, baseline) == ("inconclusive", "not_measured")


def test_mcnemar_is_the_exact_binomial_tail() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(1 / 32)
    assert mcnemar(8, 2) == pytest.approx((45 + 10 + 1) / 1024)


def test_without_a_flip_the_bound_is_that_of_an_unseen_loss() -> None:
    assert (1 - unseen_share(60)) ** 60 == pytest.approx(0.025)
    assert pairs_needed(0.1, 0.0) == 36


@given(st.lists(st.sampled_from(["right", "wrong"]), min_size=8, max_size=80))
def test_an_arm_is_never_worse_than_itself(answers: list[str]) -> None:
    table = {f"task-{number}": each for number, each in enumerate(answers)}
    found = compare(table, table, bits=BITS)
    assert found is not None
    assert (found.difference, found.lost, found.won, found.chance) == (0.0, (), (), 1.0)
    assert found.low < 0


@given(st.integers(8, 200), st.integers(0, 8), st.integers(0, 8))
def test_the_interval_holds_the_difference_and_more_losses_lower_it(
    pairs: int, lost: int, won: int
) -> None:
    lost, won = min(lost, pairs // 2), min(won, pairs // 2)
    names = [f"task-{number}" for number in range(pairs)]
    ours = ["wrong"] * lost + ["right"] * (pairs - lost)
    theirs = ["right"] * (pairs - won) + ["wrong"] * won
    found = compare(
        dict(zip(names, ours, strict=True)), dict(zip(names, theirs, strict=True)), bits=BITS
    )
    assert found is not None
    assert found.low <= found.difference
    assert found.difference == pytest.approx((won - lost) / pairs)
