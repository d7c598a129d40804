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

from inferproof.core.service import Metric
from inferproof.core.serving_facts import LoadFacts, ServeFacts
from inferproof.gates.student import student, tail_of_try

RESAMPLES = 2000
LEAST = 1e-6
_LARGEST_LOG = 700.0
FIRST_TAIL = tail_of_try(0)
MOST_RESTARTS = 200
HIGHER_IS_BETTER = frozenset({"output_tokens_per_s", "requests_per_s"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How much better the candidate is: `value`, its interval, and the A/A floor (>= 1).

    The interval leaves out `tail` on either side. `restarts`, `center_log` and `spread_log` are the
    count, mean and standard deviation of the logarithms of the restarts' own ratios.
    """

    value: float
    low: float
    high: float
    floor: float
    candidate: float
    baseline: float
    tail: float
    restarts: int
    center_log: float = 0.0
    spread_log: float = math.inf

    @property
    def is_beyond_floor(self) -> bool:
        """Whether the gain is larger than what the baseline gains over itself."""
        return self.value > self.floor

    def detectable(self, asked: float) -> float:
        """Return the least gain that so many restarts could have shown to be above `asked`."""
        half = _half_width(self.tail, self.restarts, self.spread_log)
        return max(self.floor, asked * math.exp(min(half, _LARGEST_LOG)))

    def settled_after(self, asked: float) -> int | None:
        """Return about how many restarts would tell this gain from `asked`, if any number would."""
        distance = abs(self.center_log - math.log(asked))
        for restarts in range(max(2, self.restarts + 1), MOST_RESTARTS + 1):
            if _half_width(self.tail, restarts, self.spread_log) < distance:
                return restarts
        return None


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


def ratio_of(serve: ServeFacts, traffic: str, metric: Metric, tail: float = FIRST_TAIL) -> Ratio:
    """Return the candidate's gain; all zero when something was not measured.

    One restart says nothing of how restarts differ: it has the interval of the bootstrap alone.
    Repeatable: the resamples are drawn from the facts' own bits.
    """
    rounds = rounds_of(serve, traffic)
    candidate = [samples(each.candidate, metric) for each in rounds]
    baseline = [samples(each.baseline, metric) for each in rounds]
    if not rounds or not all(candidate) or not all(baseline):
        return Ratio(
            value=0, low=0, high=0, floor=1, candidate=0, baseline=0, tail=tail, restarts=0
        )
    draw = random.Random(f"{serve.bits}:{traffic}:{metric}")  # noqa: S311 - not a secret
    resampled = sorted(_resampled(candidate, baseline, metric, draw))
    logs = [math.log(_gain([a], [b], metric)) for a, b in zip(candidate, baseline, strict=True)]
    center, spread = fmean(logs), stdev(logs) if len(logs) > 1 else math.inf
    half = _half_width(tail, len(logs), spread) if len(logs) > 1 else -math.inf
    return Ratio(
        value=_gain(candidate, baseline, metric),
        low=min(math.exp(min(center - half, _LARGEST_LOG)), percentile(resampled, tail)),
        high=max(math.exp(min(center + half, _LARGEST_LOG)), percentile(resampled, 1 - tail)),
        floor=_floor(baseline),
        candidate=_middle(candidate),
        baseline=_middle(baseline),
        tail=tail,
        restarts=len(logs),
        center_log=center,
        spread_log=spread,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `ordered` lies, between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def samples(run: LoadFacts, metric: Metric) -> tuple[float, ...]:
    """Return a run's values of a metric; none if any of them is not a time or a rate."""
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
        arms = [[redrawn(arm[i], draw) for i in chosen] for arm in (candidate, baseline)]
        gains.append(_gain(arms[0], arms[1], metric))
    return gains


def redrawn(values: Sequence[float], draw: random.Random) -> list[float]:
    """Return as many of `values`, drawn with replacement."""
    count = len(values)
    return [values[int(draw.random() * count)] for _ in range(count)]


def _half_width(tail: float, restarts: int, spread_log: float) -> float:
    """Return half of Student's interval of the mean of so many restarts' logarithms."""
    if restarts < 2 or not math.isfinite(spread_log):
        return math.inf
    return student(tail, restarts - 1) * spread_log / math.sqrt(restarts)


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
