"""Speed: on the worst timed shape, the candidate beats the best baseline by what was asked."""

from collections.abc import Sequence

from inferproof.core.evidence import GradeFacts, TimedWorkload
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Case, Clerk, measured, shape_text
from inferproof.gates.intervals import (
    SHORTEST_S,
    Speed,
    candidate_seconds,
    is_complete,
    null_share,
    null_spread_s,
    speeds,
)

CLERK = Clerk("speed", __name__)
LEAST_PAIRS = 5
LARGEST_NULL_SHARE = 0.2
SPREADS_ABOVE_NULL = 3


class Speedup:
    """Passes when the lower end of the worst shape's interval reaches the objective.

    Fails when the upper end does not; in between nothing is proved either way.
    """

    name = CLERK.gate

    def judge(self, case: Case) -> Verdict:
        """Return whether the candidate is fast enough, on what could be resolved."""
        grade = case.evidence.grade
        if grade is None:
            return CLERK.unmeasured("any time")
        missing = _missing(case, grade)
        if missing:
            return CLERK.unmeasured(missing)
        found = tuple(zip(speeds(grade), map(_is_resolved, grade.timed), strict=True))
        resolved = [speed for speed, clear in found if clear]
        worst = min(resolved, key=lambda speed: speed.low, default=None)
        slowest = min(resolved, key=lambda speed: speed.high, default=None)
        if slowest and not slowest.high >= case.speedup_at_least:
            return _too_slow(case, slowest)
        blurred = [speed for speed, clear in found if not clear]
        if blurred or not worst:
            return _too_short(blurred)
        if not worst.low >= case.speedup_at_least:
            return _too_close(case, worst)
        doubt = _clock_doubt(grade, worst)
        if not worst.low * (1 - doubt) >= case.speedup_at_least:
            return _clocks_differ(worst)
        return CLERK.passes(
            f"{_text(worst)}, on the worst shape ({shape_text(worst.dims)}){_absences(grade)}"
        )


def _missing(case: Case, grade: GradeFacts) -> str:
    ranges = len(case.contract.workloads.timed.ranges)
    if len(grade.timed) < ranges:
        return f"times on {ranges - len(grade.timed)} of {ranges} shapes"
    if not measured(case.speedup_at_least):
        return "the objective"
    needed = set(case.contract.baselines) - set(grade.absent_baselines)
    for workload in grade.timed:
        where = f" at {shape_text(workload.dims)}"
        if len(workload.pairs) < LEAST_PAIRS:
            return f"enough rounds{where}: {len(workload.pairs)} of at least {LEAST_PAIRS}"
        if not is_complete(workload):
            return f"every arm in every round{where}"
        left_out = needed - set(workload.pairs[0].baselines_s)
        if left_out:
            return f"the baseline {min(left_out)}{where}"
    return ""


def _is_resolved(workload: TimedWorkload) -> bool:
    pairs = workload.pairs
    above = candidate_seconds(pairs) >= SPREADS_ABOVE_NULL * null_spread_s(pairs)
    return above and null_share(pairs) <= LARGEST_NULL_SHARE


def _clock_doubt(grade: GradeFacts, worst: Speed) -> float:
    """Return by what share two clocks disagree on the arms that decide; 0 with one clock."""
    arms = ("candidate", worst.best_baseline)
    chains = [each for each in grade.gpu.chains if each.dims == worst.dims] if grade.gpu else []
    shares = [
        max(
            (
                abs(each.call_by_host_s - each.call_s) / max(each.call_s, SHORTEST_S)
                for each in chains
                if each.arm == arm
            ),
            default=0.0,
        )
        for arm in arms
    ]
    return min(1.0, sum(shares))


def _clocks_differ(worst: Speed) -> Verdict:
    return CLERK.doubts(
        Reason.BELOW_RESOLUTION,
        f"the gain at {shape_text(worst.dims)} is smaller than what two clocks disagree by",
    )


def _too_slow(case: Case, worst: Speed) -> Verdict:
    where = shape_text(worst.dims)
    figures = f": {_text(worst)}, asked {case.speedup_at_least:g}x" if case.shows_numbers else ""
    return CLERK.fails(
        Reason.NOT_FASTER,
        f"not fast enough over the best baseline at {where}{figures}",
        f"Profile the candidate near {where} and speed up what dominates there.",
    )


def _too_close(case: Case, worst: Speed) -> Verdict:
    where = shape_text(worst.dims)
    figures = f": {_text(worst)}, asked {case.speedup_at_least:g}x" if case.shows_numbers else ""
    return CLERK.doubts(
        Reason.BELOW_RESOLUTION,
        f"the interval at {where} holds both enough and too little{figures}",
        f"Speed up what dominates near {where}; if the machine was busy, measure again.",
    )


def _too_short(blurred: Sequence[Speed]) -> Verdict:
    where = "; ".join(shape_text(speed.dims) for speed in blurred)
    return CLERK.doubts(
        Reason.BELOW_RESOLUTION,
        f"too short to tell from the harness's own cost at {where}",
        "Ask the person in charge for larger timed shapes in the contract.",
    )


def _text(speed: Speed) -> str:
    return (
        f"{speed.ratio:.3g}x over {speed.best_baseline}, "
        f"95 % interval {speed.low:.3g} to {speed.high:.3g}"
    )


def _absences(grade: GradeFacts) -> str:
    return "".join(
        f"; not compared with {name}: {why}" for name, why in sorted(grade.absent_baselines.items())
    )
