"""Objectives: on every metric and traffic shape the candidate beats the baseline by what was asked.

Restarts are the unit of replication: one round is one start of each arm under the same traffic.
A metric that is won does not make up for one that is lost. Who tries again is held to a wider
interval, so that trying often is no way to win.
"""

from inferproof.core.service import Aim, Guard
from inferproof.core.serving_facts import ServeFacts
from inferproof.core.values import Outcome, Purpose, Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase, earlier_tries
from inferproof.gates.guards import Worsening, worsening
from inferproof.gates.ratios import Ratio, ratio_of, rounds_of
from inferproof.gates.saturation import saturation_text
from inferproof.gates.student import tail_of_try

CLERK = Clerk("objectives", __name__)
MORE = "Ask the person in charge for {restarts} or longer traffic, or make a larger gain."
LOOK = "Ask the person in charge whether another look at the final traffic is fair: promote asks."
Judged = list[tuple[Aim, Ratio]]


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
        tail = tail_of_try(earlier_tries(case.evidence))
        ratios = [(aim, ratio_of(serve, aim.traffic, aim.metric, tail)) for aim in aims_of(case)]
        verdict = _verdict(case, serve, ratios)
        return _asked_again(case, verdict) if verdict.outcome is Outcome.PASS else verdict


def aims_of(case: ServiceCase) -> tuple[Aim, ...]:
    """Return the objectives of this tier: practice and screen traffic bear the same metrics.

    Of a ramp, each concurrency has the aims of the whole.
    """
    if case.evidence.purpose is Purpose.GRADED:
        named = {shape.name: shape.steps for shape in case.contract.graded}
        pairs = [(aim, step) for aim in case.contract.objectives for step in named[aim.traffic]]
    else:
        by_metric = {aim.metric: aim for aim in case.contract.objectives}
        steps = [step for shape in case.contract.practice for step in shape.steps]
        pairs = [(aim, step) for step in steps for aim in by_metric.values()]
    return tuple(aim.model_copy(update={"traffic": step.name}) for aim, step in pairs)


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
        f"{100 * (1 - 2 * ratio.tail):.3g} % interval {ratio.low:.3g} to {ratio.high:.3g}"
    )


def _verdict(case: ServiceCase, serve: ServeFacts, ratios: Judged) -> Verdict:
    lost = [(aim, r) for aim, r in ratios if not r.high >= asked(case, aim)]
    won = [(aim, r) for aim, r in ratios if r.low >= asked(case, aim) and r.is_beyond_floor]
    if lost:
        return _lost(case, won, lost)
    guarded = [(guard, worsening(serve, guard, case.contract)) for guard in guards_of(case)]
    for guard, factor in guarded:
        if factor is not None and not factor.low <= guard.worse_at_most:
            return _worse(case, guard, factor)
    open_ = [(aim, r) for aim, r in ratios if (aim, r) not in won]
    if open_:
        return _open(case, open_)
    for guard, factor in guarded:
        if factor is None:
            return CLERK.unmeasured(_guarded(guard))
        if factor.value > guard.worse_at_most:
            return _perhaps_worse(case, guard, factor)
    return CLERK.passes(_won(case, serve, ratios))


def _missing(case: ServiceCase, serve: ServeFacts) -> str:
    is_graded = case.evidence.purpose is Purpose.GRADED
    wanted, least = (case.contract.replicas, case.contract.restarts) if is_graded else (None, 1)
    odd = [start for start in serve.deployments if wanted not in (None, start.replicas)]
    if odd:
        return f"{wanted} replicas behind the balancer, there were {odd[0].replicas}"
    for traffic in sorted({aim.traffic for aim in aims_of(case)}):
        rounds = rounds_of(serve, traffic)
        if len(rounds) < least:
            return f"{traffic} on both arms in {least} restarts, there are {len(rounds)}"
    for aim in aims_of(case):
        ratio = ratio_of(serve, aim.traffic, aim.metric)
        if min(ratio.candidate, ratio.baseline) <= 0:
            return f"{aim.metric} on {aim.traffic}"
    return ""


def _asked_again(case: ServiceCase, won: Verdict) -> Verdict:
    """Return what was won, for a person to decide on if the final traffic was met before.

    By whichever candidate: a copy with another comment is another candidate.
    """
    earlier = case.evidence.earlier
    if not case.contract.final or earlier is None or not earlier.final:
        return won
    met = f"the final traffic has judged {earlier.final} promotions of this contract before"
    return CLERK.asks(Reason.FINAL_USED, f"{met}; {won.reason}", LOOK)


def _won(case: ServiceCase, serve: ServeFacts, ratios: Judged) -> str:
    """Return all that was won, the least of it first."""
    ordered = sorted(ratios, key=lambda each: each[1].low)
    parts = [text(aim, ratio) for aim, ratio in ordered]
    parts += [found for shape in case.contract.graded if (found := saturation_text(serve, shape))]
    tries = earlier_tries(case.evidence)
    if tries:
        parts.append(f"speed verdict {tries + 1} under this seal, hence wider intervals")
    if serve.kernels:
        parts.append(f"end to end with {_kernels(serve)}")
    return "; ".join(parts)


def _lost(case: ServiceCase, won: Judged, lost: Judged) -> Verdict:
    where = "; ".join(_told(case, aim, ratio) for aim, ratio in lost)
    serve = case.evidence.serve
    if serve is not None and serve.kernels:
        where += f"; what {_kernels(serve)} won alone is lost end to end"
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


def _kernels(serve: ServeFacts) -> str:
    named = (f"{contract} {digest[:12]}" for contract, digest in sorted(serve.kernels.items()))
    return f"kernel {', '.join(named)}"


def _worse(case: ServiceCase, guard: Guard, factor: Worsening) -> Verdict:
    return CLERK.fails(
        Reason.GUARD_WORSE,
        f"{_guarded(guard)} got worse{_figures(case, guard, factor)}",
        "Keep the tail: look for queueing and pauses under this traffic.",
    )


def _perhaps_worse(case: ServiceCase, guard: Guard, factor: Worsening) -> Verdict:
    what = f"whether {_guarded(guard)} got worse is not clear{_figures(case, guard, factor)}"
    return CLERK.doubts(Reason.BELOW_RESOLUTION, what, MORE.format(restarts="more restarts"))


def _guarded(guard: Guard) -> str:
    if guard.metric == "peak_memory_mib":
        return "peak memory of all replicas"
    if guard.metric == "error_share":
        return f"the share of failed requests on {guard.traffic}"
    return f"P{guard.percentile:g} of {guard.metric} on {guard.traffic}"


def _figures(case: ServiceCase, guard: Guard, factor: Worsening) -> str:
    if not case.shows_numbers:
        return ""
    return f": {factor.value:.3g}x, allowed {guard.worse_at_most:g}x"


def _open(case: ServiceCase, found: Judged) -> Verdict:
    where = "; ".join(_told(case, aim, ratio) for aim, ratio in found)
    needed = [ratio.settled_after(asked(case, aim)) for aim, ratio in found]
    known = [each for each in needed if each is not None]
    restarts = f"about {max(known)} restarts of each arm" if known else "more restarts"
    reason = f"below what {found[0][1].restarts} restarts can tell: {where}"
    if known:
        reason += f"; {restarts} would settle it"
    return CLERK.doubts(Reason.BELOW_RESOLUTION, reason, MORE.format(restarts=restarts))


def _told(case: ServiceCase, aim: Aim, ratio: Ratio) -> str:
    least = asked(case, aim)
    if case.shows_numbers:
        return (
            f"{text(aim, ratio)}, asked {least:g}x, floor {ratio.floor:.3g}x, "
            f"detectable {ratio.detectable(least):.3g}x"
        )
    return f"{aim.metric} on {aim.traffic} is not {least:g}x the baseline's"
