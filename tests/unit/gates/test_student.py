"""Quantiles, and what endless tries may cost."""

import math

import pytest

from inferproof.gates.student import BUDGET, rank, rounds_for, student, tail_of_try


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


def heads_of(coins: int, least: int) -> float:
    """Return the chance that so many fair coins show so many heads or more."""
    return sum(math.comb(coins, each) for each in range(least, coins + 1)) / 2**coins


@pytest.mark.parametrize("rounds", [5, 12, 20, 51, 200])
@pytest.mark.parametrize("earlier", [0, 1, 7, 40, 900])
def test_a_place_in_order_is_above_the_median_no_more_often_than_its_try_may_err(
    rounds: int, earlier: int
) -> None:
    """The value of rank r is above the median where all but r - 1 of the values are."""
    tail, place = tail_of_try(earlier), rank(tail_of_try(earlier), rounds)
    assert place == 0 or heads_of(rounds, rounds - place + 1) <= tail
    assert heads_of(rounds, rounds - place) > tail


def test_the_first_try_has_the_rounds_that_its_contract_plans() -> None:
    assert [rounds_for(0, planned) for planned in (5, 20, 200)] == [5, 20, 200]


def test_every_later_try_has_rounds_enough_for_its_level_though_one_in_five_is_spoilt() -> None:
    asked = [rounds_for(earlier, 20) for earlier in range(1, 2000)]
    assert asked == sorted(asked)
    assert asked[0] == 20
    assert asked[-1] < 100
    for earlier, rounds in enumerate(asked, 1):
        assert rank(tail_of_try(earlier), rounds) > rounds // 5
