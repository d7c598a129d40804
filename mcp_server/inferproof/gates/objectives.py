"""Objectives: on every metric and traffic shape the candidate beats the baseline by what was asked.

Restarts are the unit of replication: one round is one start of each arm under the same traffic.
A metric that is won does not make up for one that is lost.
"""

from inferproof.core.service import Aim, Guard
from inferproof.core.serving_facts import ServeFacts
from inferproof.core.values import Purpose, Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase
from inferproof.gates.ratios import Ratio, guard_ratio, ratio_of, rounds_of

CLERK = Clerk("objectives", __name__)
MORE = "Ask the person in charge for more restarts or longer traffic, or make a larger gain."


class Objectives:
    """Passes when the lower end of every ratio clears its aim and no guard got worse."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the candidate is faster everywhere it must be."""
        serve = case.evidence.serve
        if serve is None or not serve.loads:
            return CLERK.unmeasured("any load run")
        missing = _missing(case, serve)
        if missing:
            return CLERK.unmeasured(missing)
        aims = aims_of(case)
        ratios = [(aim, ratio_of(serve, aim.traffic, aim.metric)) for aim in aims]
        lost = [(aim, r) for aim, r in ratios if not r.high >= asked(case, aim)]
        won = [(aim, r) for aim, r in ratios if r.low >= asked(case, aim) and r.is_beyond_floor]
        if lost:
            return _lost(case, won, lost)
        worse = [(g, guard_ratio(serve, g)) for g in guards_of(case)]
        for guard, factor in worse:
            if not factor <= guard.worse_at_most:
                return _worse(case, guard, factor)
        open_ = [(aim, r) for aim, r in ratios if (aim, r) not in won]
        if open_:
            return _open(case, open_)
        return CLERK.passes("; ".join(text(aim, r) for aim, r in ratios))


def aims_of(case: ServiceCase) -> tuple[Aim, ...]:
    """Return the objectives of this tier: practice and screen traffic bear the same metrics."""
    if case.evidence.purpose is Purpose.GRADED:
        return case.contract.objectives
    by_metric = {aim.metric: aim for aim in case.contract.objectives}
    return tuple(
        aim.model_copy(update={"traffic": shape.name})
        for shape in case.contract.practice
        for aim in by_metric.values()
    )


def guards_of(case: ServiceCase) -> tuple[Guard, ...]:
    """Return the guards of this tier; they hold on graded traffic."""
    return case.contract.guards if case.evidence.purpose is Purpose.GRADED else ()


def asked(case: ServiceCase, aim: Aim) -> float:
    """Return the ratio that an objective asks for."""
    return aim.ratio_at_least if aim.ratio_at_least is not None else case.speedup_at_least


def text(aim: Aim, ratio: Ratio) -> str:
    """Return one objective's result as a reader writes it."""
    return (
        f"{aim.metric} on {aim.traffic}: {ratio.value:.3g}x, "
        f"95 % interval {ratio.low:.3g} to {ratio.high:.3g}"
    )


def _missing(case: ServiceCase, serve: ServeFacts) -> str:
    least = case.contract.restarts if case.evidence.purpose is Purpose.GRADED else 1
    for traffic in sorted({aim.traffic for aim in aims_of(case)}):
        rounds = rounds_of(serve, traffic)
        if len(rounds) < least:
            return f"{traffic} on both arms in {least} restarts, there are {len(rounds)}"
    for aim in aims_of(case):
        ratio = ratio_of(serve, aim.traffic, aim.metric)
        if min(ratio.candidate, ratio.baseline) <= 0:
            return f"{aim.metric} on {aim.traffic}"
    return ""


def _lost(
    case: ServiceCase, won: list[tuple[Aim, Ratio]], lost: list[tuple[Aim, Ratio]]
) -> Verdict:
    where = "; ".join(_told(case, aim, ratio) for aim, ratio in lost)
    if won:
        gains = ", ".join(f"{aim.metric} on {aim.traffic}" for aim, _ in won)
        return CLERK.fails(
            Reason.MIXED_RESULT,
            f"{where}; won: {gains}; a metric that is won does not make up for one that is lost",
            "Keep the gain and bring the lost metrics over the bar.",
        )
    return CLERK.fails(
        Reason.NOT_FASTER, where, "Find where the time goes under this traffic and speed that up."
    )


def _worse(case: ServiceCase, guard: Guard, factor: float) -> Verdict:
    figures = f": {factor:.3g}x, allowed {guard.worse_at_most:g}x" if case.shows_numbers else ""
    return CLERK.fails(
        Reason.GUARD_WORSE,
        f"P{guard.percentile:g} of {guard.metric} on {guard.traffic} got worse{figures}",
        "Keep the tail: look for queueing and pauses under this traffic.",
    )


def _open(case: ServiceCase, found: list[tuple[Aim, Ratio]]) -> Verdict:
    where = "; ".join(_told(case, aim, ratio) for aim, ratio in found)
    return CLERK.doubts(Reason.BELOW_RESOLUTION, f"not proved either way: {where}", MORE)


def _told(case: ServiceCase, aim: Aim, ratio: Ratio) -> str:
    if case.shows_numbers:
        return f"{text(aim, ratio)}, asked {asked(case, aim):g}x, floor {ratio.floor:.3g}x"
    return f"{aim.metric} on {aim.traffic} is not {asked(case, aim):g}x the baseline's"
