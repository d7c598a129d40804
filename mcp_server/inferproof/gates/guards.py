"""Guards: by which factor a tail, the errors or the memory got worse, and how sure that is."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from inferproof.core.service import Guard, Metric, ServiceContract
from inferproof.core.serving_facts import LoadFacts, ServeFacts
from inferproof.gates.ratios import (
    HIGHER_IS_BETTER,
    LEAST,
    RESAMPLES,
    Round,
    percentile,
    redrawn,
    rounds_of,
    samples,
)

TAIL = 0.05
Rounds = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Worsening:
    """By which factor a guarded metric got worse; with chance `TAIL` it is less than `low`."""

    value: float
    low: float


def worsening(serve: ServeFacts, guard: Guard, contract: ServiceContract) -> Worsening | None:
    """Return the worst factor of a guard over the steps of its traffic; None if not measured."""
    if guard.metric == "peak_memory_mib":
        return _memory(serve)
    steps = [s.name for t in contract.graded if t.name == guard.traffic for s in t.steps]
    rounds = [rounds_of(serve, each) for each in steps]
    if guard.metric == "error_share":
        found = [_errors(each) for each in rounds]
    else:
        named = zip(steps, rounds, strict=True)
        found = [_tail(each, guard, guard.metric, f"{serve.bits}:{name}") for name, each in named]
    known = [each for each in found if each is not None]
    return max(known, key=lambda each: each.low) if known and len(known) == len(found) else None


def _tail(rounds: Sequence[Round], guard: Guard, metric: Metric, seed: str) -> Worsening | None:
    ours = [samples(each.candidate, metric) for each in rounds]
    theirs = [samples(each.baseline, metric) for each in rounds]
    if not rounds or not all(ours) or not all(theirs):
        return None
    draw = random.Random(f"{seed}:{metric}:{guard.percentile}")  # noqa: S311 - not a secret
    count = len(rounds)
    factors: list[float] = []
    for _ in range(RESAMPLES):
        chosen = [int(draw.random() * count) for _ in range(count)]
        arms = [[redrawn(arm[i], draw) for i in chosen] for arm in (ours, theirs)]
        factors.append(_factor(arms[0], arms[1], guard, metric))
    low = percentile(sorted(factors), TAIL)
    return Worsening(_factor(ours, theirs, guard, metric), low)


def _factor(ours: Rounds, theirs: Rounds, guard: Guard, metric: Metric) -> float:
    """Return the ratio of the arms' percentiles over all requests, above 1 if ours is worse."""
    is_rate = metric in HIGHER_IS_BETTER
    share = 1 - guard.percentile / 100 if is_rate else guard.percentile / 100
    candidate, baseline = (
        max(percentile(sorted(value for each in arm for value in each), share), LEAST)
        for arm in (ours, theirs)
    )
    return baseline / candidate if is_rate else candidate / baseline


def _errors(rounds: Sequence[Round]) -> Worsening | None:
    """Return the factor of the shares of failed requests; none on either side is as good."""
    if not rounds:
        return None
    ours = _failed([each.candidate for each in rounds])
    theirs = _failed([each.baseline for each in rounds])
    factor = ours / theirs if theirs else math.inf if ours else 1.0
    return Worsening(factor, factor)


def _failed(runs: Sequence[LoadFacts]) -> float:
    asked = sum(run.asked for run in runs)
    return (asked - sum(run.completed for run in runs)) / asked if asked else 1.0


def _memory(serve: ServeFacts) -> Worsening | None:
    """Return the factor of the greatest peaks of any start, all replicas together."""
    ours, theirs = (
        [start.peak_memory_mib for start in serve.deployments if start.arm == arm]
        for arm in ("candidate", "baseline")
    )
    known = [[each for each in arm if each is not None] for arm in (ours, theirs)]
    if not all(known) or len(known[0]) < len(ours) or len(known[1]) < len(theirs):
        return None
    factor = max(known[0]) / max(LEAST, *known[1])
    return Worsening(factor, factor)
