"""How an error budget is spent on tries, and the quantiles that intervals need for it.

An agent may measure as often as it likes; who tries often enough is lucky once. The first try has
the interval that one try deserves, each later one a wider one, and however many there are, the
chance that any of them passes by luck alone stays below the budget.
"""

import functools
import math

BUDGET = 0.05
"""The chance that luck passes any of endlessly many tries, on one metric and one side."""


SPOILT = 5
"""One round in so many may be spoilt, by a busy machine say, and a later try still be told."""


def tail_of_try(earlier: int) -> float:
    """Return the one-sided error of a try after `earlier` ones: 2.5 % for the first.

    `BUDGET / (k * (k + 1))` for the k-th: all of them together are `BUDGET`.
    """
    return BUDGET / ((earlier + 1) * (earlier + 2))


@functools.cache
def rank(tail: float, rounds: int) -> int:
    """Return which of so many independent values, in order, bounds their median; 0 if none does.

    That value is above the median with a chance of `tail` at most, whatever they are drawn from:
    it takes so many heads of fair coins.
    """
    found, chance = 0, 0.5**rounds
    while chance <= tail:
        found += 1
        chance += math.comb(rounds, found) * 0.5**rounds
    return found


@functools.cache
def rounds_for(earlier: int, planned: int) -> int:
    """Return how many rounds tell a try after `earlier` ones, though one in five goes badly.

    The first has the `planned` ones; later ones as many and, where that is not enough, more.
    """
    rounds, tail = planned, tail_of_try(earlier)
    while earlier and rank(tail, rounds) <= rounds // SPOILT:
        rounds += 1
    return rounds


@functools.cache
def student(tail: float, freedom: int) -> float:
    """Return the value that Student's t exceeds with a chance of `tail`, below one half."""
    low, high = 0.0, 1.0
    while _upper(high, freedom) > tail:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _upper(middle, freedom) > tail else (low, middle)
    return high


def _upper(value: float, freedom: int) -> float:
    """Return the chance of more than `value`: the finite series for whole degrees of freedom."""
    angle = math.atan2(value, math.sqrt(freedom))
    cosine, sine = math.cos(angle), math.sin(angle)
    term, total = (cosine, 0.0) if freedom % 2 else (1.0, 0.0)
    start = 3 if freedom % 2 else 2
    if freedom > 1:
        total = term
        for each in range(start, freedom, 2):
            term *= cosine * cosine * (each - 1) / each
            total += term
    within = sine * total if freedom % 2 == 0 else 2 / math.pi * (angle + sine * total)
    return (1 - within) / 2
