"""Student's quantiles, and what endless tries may cost."""

import math

import pytest

from inferproof.gates.student import BUDGET, student, tail_of_try


@pytest.mark.parametrize(
    ("tail", "freedom", "value"),
    [
        (0.025, 1, 12.706),
        (0.025, 2, 4.303),
        (0.025, 3, 3.182),
        (0.025, 10, 2.228),
        (0.005, 5, 4.032),
        (0.0005, 4, 8.610),
        (0.025, 200, 1.972),
    ],
)
def test_quantiles_are_those_of_the_tables(tail: float, freedom: int, value: float) -> None:
    assert student(tail, freedom) == pytest.approx(value, rel=2e-4)


def test_the_first_try_has_a_95_percent_interval() -> None:
    assert tail_of_try(0) == pytest.approx(0.025)


def test_each_try_is_held_to_more_and_all_of_them_together_stay_within_the_budget() -> None:
    tails = [tail_of_try(each) for each in range(10_000)]
    assert tails == sorted(tails, reverse=True)
    assert 0.99 * BUDGET < math.fsum(tails) < BUDGET
