"""Speed: on the worst timed shape, the candidate beats the best baseline by what was asked.

Who tries again is held to a wider interval, so that trying often is no way to win.
"""

from collections.abc import Mapping, Sequence

from inferproof.core.evidence import GradeFacts, TimedWorkload
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Case, Clerk, earlier_tries, measured, shape_text
from inferproof.gates.intervals import (
    SHORTEST_S,
    Speed,
    candidate_seconds,
    is_complete,
    null_share,
    null_spread_s,
    speeds,
)
from inferproof.gates.student import rank, tail_of_try

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
        if grade.absent_baselines:
            return _absent(grade.absent_baselines)
        earlier = earlier_tries(case.evidence)
        found = tuple(zip(speeds(grade, earlier), map(_is_resolved, grade.timed), strict=True))
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
            f"{_text(worst)}, on the worst shape ({shape_text(worst.dims)}){_of_try(case)}"
        )


def _missing(case: Case, grade: GradeFacts) -> str:
    ranges = len(case.contract.workloads.timed.ranges)
    if len(grade.timed) < ranges:
        return f"times on {ranges - len(grade.timed)} of {ranges} shapes"
    if not measured(case.speedup_at_least):
        return "the objective"
    needed = set(case.contract.baselines) - set(grade.absent_baselines)
    tail = tail_of_try(earlier_tries(case.evidence))
    for workload in grade.timed:
        where = f" at {shape_text(workload.dims)}"
        if len(workload.pairs) < LEAST_PAIRS:
            return f"enough rounds{where}: {len(workload.pairs)} of at least {LEAST_PAIRS}"
        if tail < tail_of_try(0) and not rank(tail, len(workload.pairs)):
            return f"enough rounds{where}: {len(workload.pairs)} cannot tell{_of_try(case)}"
        if not is_complete(workload):
            return f"every arm in every round{where}"
        left_out = needed - set(workload.pairs[0].baselines_s)
        if left_out:
            return f"the baseline {min(left_out)}{where}"
    return ""


def _absent(baselines: Mapping[str, str]) -> Verdict:
    """Return the verdict on a bar that lacks a part: whoever is faster than the rest may not be."""
    told = "; ".join(f"{name}: {why}" for name, why in sorted(baselines.items()))
    return CLERK.doubts(
        Reason.INFRASTRUCTURE,
        f"a baseline of the contract did not run here, so the bar is not known: {told}",
        "A person mends the target (inferproof doctor), or takes that baseline out of the contract "
        "and seals again.",
    )


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
        f"not fast enough over the best baseline at {where}{figures}{_of_try(case)}",
        f"Profile the candidate near {where} and speed up what dominates there.",
    )


def _too_close(case: Case, worst: Speed) -> Verdict:
    where = shape_text(worst.dims)
    figures = f": {_text(worst)}, asked {case.speedup_at_least:g}x" if case.shows_numbers else ""
    return CLERK.doubts(
        Reason.BELOW_RESOLUTION,
        f"the interval at {where} holds both enough and too little{figures}{_of_try(case)}",
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
        f"{_level(speed.tail)} % interval {speed.low:.3g} to {speed.high:.3g}"
    )


def _of_try(case: Case) -> str:
    """Return how often the contract's speed was asked for and what follows; nothing at first."""
    earlier = earlier_tries(case.evidence)
    if not earlier:
        return ""
    level = _level(tail_of_try(earlier))
    return f"; try {earlier + 1} under this seal, hence a {level} % interval"


def _level(tail: float) -> str:
    return f"{100 * (1 - 2 * tail):.7g}"
