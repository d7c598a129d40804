"""From load runs of two arms to one ratio with an interval, the same for every judge.

A ratio above 1 means that the candidate is better. The interval is the wider of two: a bootstrap
over restarts, and within a restart over requests; and Student's over the restarts' own ratios, as a
bootstrap of few restarts is too sure of itself. The floor is how far the baseline differs from
itself between restarts: a gain smaller than that proves nothing.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from inferproof.core.service import Guard, Metric
from inferproof.core.serving_facts import LoadFacts, ServeFacts

RESAMPLES = 2000
LEAST = 1e-6
_LARGEST_LOG = 700.0
CONFIDENCE = 0.95
# Student's two-sided 95 % quantiles for 1, 2, ... degrees of freedom; more count as the last.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
HIGHER_IS_BETTER = frozenset({"output_tokens_per_s", "requests_per_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How much better the candidate is: `value`, its 95 % interval, and the A/A floor (>= 1)."""

    value: float
    low: float
    high: float
    floor: float
    candidate: float
    baseline: float

    @property
    def is_beyond_floor(self) -> bool:
        """Whether the gain is larger than what the baseline gains over itself."""
        return self.value > self.floor


@dataclass(frozen=True, slots=True)
class Round:
    """One restart of each arm under the same traffic."""

    candidate: LoadFacts
    baseline: LoadFacts


def rounds_of(serve: ServeFacts, traffic: str) -> tuple[Round, ...]:
    """Return the restarts in which both arms served `traffic`."""
    runs: Mapping[tuple[str, int], LoadFacts] = {
        (run.arm, run.restart): run for run in serve.loads if run.traffic == traffic
    }
    restarts = sorted({restart for _, restart in runs})
    return tuple(
        Round(runs["candidate", restart], runs["baseline", restart])
        for restart in restarts
        if ("candidate", restart) in runs and ("baseline", restart) in runs
    )


def ratio_of(serve: ServeFacts, traffic: str, metric: Metric) -> Ratio:
    """Return the candidate's gain; all zero when something was not measured.

    Repeatable: the resamples are drawn from the facts' own bits.
    """
    rounds = rounds_of(serve, traffic)
    candidate = [_samples(each.candidate, metric) for each in rounds]
    baseline = [_samples(each.baseline, metric) for each in rounds]
    if not rounds or not all(candidate) or not all(baseline):
        return Ratio(value=0, low=0, high=0, floor=1, candidate=0, baseline=0)
    draw = random.Random(f"{serve.bits}:{traffic}:{metric}")  # noqa: S311 - not a secret
    resampled = sorted(_resampled(candidate, baseline, metric, draw))
    tail = (1 - CONFIDENCE) / 2
    low, high = _student(
        [_gain([a], [b], metric) for a, b in zip(candidate, baseline, strict=True)]
    )
    return Ratio(
        value=_gain(candidate, baseline, metric),
        low=min(low, percentile(resampled, tail)),
        high=max(high, percentile(resampled, 1 - tail)),
        floor=_floor(baseline),
        candidate=_middle(candidate),
        baseline=_middle(baseline),
    )


def guard_ratio(serve: ServeFacts, guard: Guard) -> float:
    """Return by which factor a percentile got worse; infinite when it was not measured."""
    rounds = rounds_of(serve, guard.traffic)
    arms = (
        [v for each in rounds for v in _samples(each.candidate, guard.metric)],
        [v for each in rounds for v in _samples(each.baseline, guard.metric)],
    )
    if not all(arms):
        return math.inf
    share = guard.percentile / 100
    if guard.metric in HIGHER_IS_BETTER:
        candidate, baseline = (percentile(sorted(arm), 1 - share) for arm in arms)
        return baseline / candidate if candidate > 0 else math.inf
    candidate, baseline = (percentile(sorted(arm), share) for arm in arms)
    return candidate / baseline if baseline > 0 else math.inf


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `ordered` lies, between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _samples(run: LoadFacts, metric: Metric) -> tuple[float, ...]:
    match metric:
        case "ttft_ms":
            found = run.ttft_ms
        case "tpot_ms":
            found = run.tpot_ms
        case "latency_ms":
            found = run.latency_ms
        case "output_tokens_per_s":
            found = () if run.output_tokens_per_s is None else (run.output_tokens_per_s,)
        case "requests_per_s":
            found = () if run.requests_per_s is None else (run.requests_per_s,)
    return found if all(math.isfinite(each) and each >= 0 for each in found) else ()


def _resampled(
    candidate: Sequence[Sequence[float]],
    baseline: Sequence[Sequence[float]],
    metric: Metric,
    draw: random.Random,
) -> list[float]:
    count = len(candidate)
    gains: list[float] = []
    for _ in range(RESAMPLES):
        chosen = [int(draw.random() * count) for _ in range(count)]
        arms = [[_redrawn(arm[i], draw) for i in chosen] for arm in (candidate, baseline)]
        gains.append(_gain(arms[0], arms[1], metric))
    return gains


def _redrawn(values: Sequence[float], draw: random.Random) -> list[float]:
    count = len(values)
    return [values[int(draw.random() * count)] for _ in range(count)]


def _student(gains: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean gain of restarts, of their logarithms.

    One restart says nothing of how restarts differ: it has no interval of this kind.
    """
    logs = [math.log(gain) for gain in gains]
    if len(logs) < 2:
        return math.inf, -math.inf
    freedom = min(len(logs) - 1, len(_STUDENT))
    half = _STUDENT[freedom - 1] * stdev(logs) / math.sqrt(len(logs))
    middle = fmean(logs)
    return math.exp(middle - half), math.exp(min(middle + half, _LARGEST_LOG))


def _gain(
    candidate: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]], metric: Metric
) -> float:
    ours, theirs = max(_middle(candidate), LEAST), max(_middle(baseline), LEAST)
    return ours / theirs if metric in HIGHER_IS_BETTER else theirs / ours


def _middle(rounds: Sequence[Sequence[float]]) -> float:
    """Return the median over restarts of each restart's median."""
    return median(median(values) for values in rounds)


def _floor(baseline: Sequence[Sequence[float]]) -> float:
    """Return the largest ratio between two restarts of the baseline."""
    middles = [max(median(values), LEAST) for values in baseline]
    return max(middles) / min(middles)
