"""From rounds of interleaved calls to a speed ratio with an interval, the same for every judge.

The first try has the interval of a bootstrap over rounds. A later one has the wider of that and of
the rounds' own ratios in order, which bound their median with the error that the try is due,
however the times are scattered.
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from inferproof.core.evidence import GradeFacts, TimedPair, TimedWorkload
from inferproof.gates.base import measured
from inferproof.gates.student import rank, tail_of_try

RESAMPLES = 2000
SHORTEST_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One shape's result: best baseline's time over the candidate's, in the interval `low..high`.

    The interval leaves out `tail` on either side. Times have the harness's own cost, measured with
    a candidate that does nothing, taken off. What is left is never less than that cost varies by:
    less cannot be told from nothing.
    """

    dims: dict[str, int]
    candidate_s: float
    best_baseline: str
    best_baseline_s: float
    ratio: float
    low: float
    high: float
    tail: float


def speeds(grade: GradeFacts, earlier: int = 0) -> tuple[Speed, ...]:
    """Return one result per timed shape, of a try after `earlier` ones.

    Repeatable: the resamples are drawn from `grade.bits`.
    """
    return tuple(
        _speed(workload, random.Random(f"{grade.bits}:{index}"), earlier)  # noqa: S311 - no secret
        for index, workload in enumerate(grade.timed)
    )


def is_complete(workload: TimedWorkload) -> bool:
    """Return whether every round has finite times of the same, at least one, baselines."""
    if not workload.pairs:
        return False
    names = set(workload.pairs[0].baselines_s)
    return bool(names) and all(
        set(pair.baselines_s) == names and all(map(measured, _times(pair)))
        for pair in workload.pairs
    )


def candidate_seconds(pairs: Sequence[TimedPair]) -> float:
    """Return the candidate's median time less the harness's own."""
    return _net(
        median(pair.candidate_s for pair in pairs), _null(pairs), least_s=null_spread_s(pairs)
    )


def null_share(pairs: Sequence[TimedPair]) -> float:
    """Return the harness's own cost as a share of the candidate's measured time."""
    return _null(pairs) / max(median(pair.candidate_s for pair in pairs), SHORTEST_S)


def null_spread_s(pairs: Sequence[TimedPair]) -> float:
    """Return the distance between the quartiles of the harness's own cost."""
    ordered = sorted(pair.null_s for pair in pairs)
    return _percentile(ordered, 0.75) - _percentile(ordered, 0.25)


def _speed(workload: TimedWorkload, draw: random.Random, earlier: int) -> Speed:
    pairs = workload.pairs
    null_s, spread_s = _null(pairs), null_spread_s(pairs)
    baselines = {
        name: _net(median(pair.baselines_s[name] for pair in pairs), null_s, least_s=spread_s)
        for name in sorted(pairs[0].baselines_s)
    }
    best = min(baselines, key=baselines.__getitem__)
    candidate_s = candidate_seconds(pairs)
    ratios = sorted(_resampled_ratios(pairs, draw))
    first, tail = tail_of_try(0), tail_of_try(earlier)
    low, high = _percentile(ratios, first), _percentile(ratios, 1 - first)
    if earlier:
        each = [_in_order(pairs, name) for name in baselines]
        place = rank(tail, len(pairs))
        low = min(low, *(found[place - 1] if place else 0.0 for found in each))
        high = max(high, min(found[-place] if place else math.inf for found in each))
    return Speed(
        dims=workload.dims,
        candidate_s=candidate_s,
        best_baseline=best,
        best_baseline_s=baselines[best],
        ratio=baselines[best] / candidate_s,
        low=low,
        high=high,
        tail=tail,
    )


def _in_order(pairs: Sequence[TimedPair], name: str) -> list[float]:
    """Return the ratio over one baseline in each round by itself, the least first."""
    null_s, spread_s = _null(pairs), null_spread_s(pairs)
    return sorted(
        _net(pair.baselines_s[name], null_s, least_s=spread_s)
        / _net(pair.candidate_s, null_s, least_s=spread_s)
        for pair in pairs
    )


def _resampled_ratios(pairs: Sequence[TimedPair], draw: random.Random) -> Iterable[float]:
    """Yield the ratio of paired medians over rounds drawn with replacement, whole rounds."""
    count = len(pairs)
    middle = count // 2
    candidate = [pair.candidate_s for pair in pairs]
    null = [pair.null_s for pair in pairs]
    spread_s = null_spread_s(pairs)
    baselines = [[pair.baselines_s[name] for pair in pairs] for name in pairs[0].baselines_s]
    for _ in range(RESAMPLES):
        rounds = [int(draw.random() * count) for _ in range(count)]

        def middle_of(times: Sequence[float], rounds: Sequence[int] = rounds) -> float:
            ordered = sorted([times[i] for i in rounds])
            return ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2

        null_s = middle_of(null)
        best_s = min(_net(middle_of(times), null_s, least_s=spread_s) for times in baselines)
        yield best_s / _net(middle_of(candidate), null_s, least_s=spread_s)


def _net(seconds: float, null_s: float, *, least_s: float) -> float:
    return max(seconds - null_s, least_s, SHORTEST_S)


def _null(pairs: Sequence[TimedPair]) -> float:
    return median(pair.null_s for pair in pairs)


def _times(pair: TimedPair) -> tuple[float, ...]:
    return (pair.candidate_s, pair.null_s, *pair.baselines_s.values())


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `ordered` lies, between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
