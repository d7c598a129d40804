"""Audit: responses of the scored runs themselves are what the reference model would say.

Greedy tokens must be near the reference's best: of all of them few may be off, and of the first and
last ones of responses, which an engine may guess or leave out, hardly any. Those that are near must
lose no more on average than the trusted path's own choices do, in a run and in all, by the
contract's multiple and chance: who always takes the worst of what is nearly a tie is near in every
token, far in all. Tokens drawn at temperature 1 must come, and be drawn: an engine that always
takes the best saves the sampling, and one that has noise for the rest saves the rest. Either of
these errs once in a million honest runs at most. Only tokens that the engine told are tested for
noise: a text can be split otherwise.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

from inferproof.core.service import Audit
from inferproof.core.serving_facts import AuditFacts, LoadFacts
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase
from inferproof.gates.losses import mean_beyond

CLERK = Clerk("audit", __name__)
LEAST_DRAWN = 32
CHANCE = 1e-6
SERVE_ALIKE = "Serve load by the path that check_numerics checked; compare outputs under load."
CHOOSE = "Take the likeliest token of each greedy request under load too; verify every draft."
ANSWER = "Answer requests at temperature 1 as all others, with as many tokens as they ask for."
SAMPLE = "Honour temperature in every request: draw from the whole distribution at 1."


class Audited:
    """Passes when, in every run of the candidate, almost all tokens are the reference's."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the traffic that was timed was answered by this model."""
        serve = case.evidence.serve
        runs = [] if serve is None else [run for run in serve.loads if run.arm == "candidate"]
        if not runs:
            return CLERK.unmeasured("any load run")
        for run in (run for run in runs if run.audit and run.audit.drawn_failed):
            what = f"requests at temperature 1, after {_where(run)}, were not answered whole"
            return CLERK.fails(Reason.AUDIT_FAILED, what, ANSWER)
        rules = case.contract.audit
        missing = [_missing(run, rules) for run in runs]
        whole = [run for run, lack in zip(runs, missing, strict=True) if not lack]
        found = chain(*(_findings(run, rules) for run in whole), _choices(whole, case))
        for what, next_step in found:
            return CLERK.fails(Reason.AUDIT_FAILED, what, next_step)
        if any(missing):
            return CLERK.unmeasured(next(filter(None, missing)))
        tokens = sum(len(run.audit.tie_gap_nats) for run in runs if run.audit)
        responses = sum(run.audit.responses for run in runs if run.audit)
        return CLERK.passes(f"{tokens} tokens of {responses} served responses are the model's")


def allowed(tokens: int, share: float) -> int:
    """Return how many tokens may be off: the share, and what chance adds in a small sample."""
    expected = share * tokens
    return math.floor(expected + 2 * math.sqrt(expected))


def chance_of_draws(audit: AuditFacts) -> float:
    """Return at most how likely a sampler takes the best token that often, or that seldom.

    Hoeffding's bound for independent draws of unequal chances, on either side of their mean.
    """
    count = len(audit.drawn_best)
    share, mean = sum(audit.drawn_best) / count, sum(audit.drawn_best_chance) / count
    if not 0 < mean < 1:
        return float(share == mean)
    return math.exp(-count * (_part(share, mean) + _part(1 - share, 1 - mean)))


def _part(share: float, chance: float) -> float:
    return share * math.log(share / chance) if share else 0.0


def _missing(run: LoadFacts, rules: Audit) -> str:
    """Return what the audit of a run lacks; empty when it is whole."""
    where, audit = _where(run), run.audit
    wanted = min(rules.responses, run.asked)
    if audit is None or audit.responses < wanted or not audit.tie_gap_nats:
        return f"{wanted} responses of {where}"
    if sum(audit.tokens) != len(audit.tie_gap_nats) or len(audit.tokens) != audit.responses:
        return f"which tokens belong together in {where}"
    if len(audit.floor_loss_nats) not in (0, len(audit.tie_gap_nats)):
        return f"what the trusted path would lose in {where}"
    columns = (audit.drawn_best, audit.drawn_best_chance)
    if min(map(len, columns)) < LEAST_DRAWN or len(columns[0]) != len(columns[1]):
        return f"tokens drawn at temperature 1 after {where}"
    is_chance = all(0 <= each <= 1 for each in audit.drawn_best_chance)
    is_chance &= len(audit.drawn_noise_nats) <= len(columns[0])
    return "" if is_chance else f"the chance of tokens drawn after {where}"


def _findings(run: LoadFacts, rules: Audit) -> Iterator[tuple[str, str]]:
    audit, where = run.audit, _where(run)
    if audit is None:
        return
    is_off = [not gap <= rules.tie_nats for gap in audit.tie_gap_nats]
    starts, ends = _ends(audit.tokens)
    for which, at in {"": range(len(is_off)), "first ": starts, "last ": ends}.items():
        off = sum(is_off[place] for place in at)
        if off > allowed(len(at), rules.off_share_at_most):
            what = f"{off} of {len(at)} {which}tokens served in {where} are not the model's"
            yield what, SERVE_ALIKE
    if sum(audit.drawn_noise_nats) > -math.log(CHANCE):
        yield f"at temperature 1, after {where}, tokens are less likely than drawn ones", SAMPLE
    if chance_of_draws(audit) < CHANCE:
        best, drawn = sum(audit.drawn_best), len(audit.drawn_best)
        what = f"at temperature 1, after {where}, the best token came {best} of {drawn} times"
        yield what, SAMPLE


def _choices(runs: Sequence[LoadFacts], case: ServiceCase) -> Iterator[tuple[str, str]]:
    """Yield where near tokens lose more than the trusted path's: a run, or all runs together."""
    near = [(_where(run), _near(run.audit, case.contract.audit)) for run in runs if run.audit]
    together = ("all runs together", [row for _, rows in near for row in rows])
    for where, rows in (*near, together):
        if figures := mean_beyond(rows, case.contract.fidelity.mean_over_floor):
            told = f": {figures}" if case.shows_numbers else ""
            yield f"tokens served in {where} are too often not the model's choice{told}", CHOOSE


def _near(audit: AuditFacts, rules: Audit) -> list[tuple[float, float]]:
    """Return what choices lose, and the trusted path's: of rows where neither is off."""
    rows = zip(audit.tie_gap_nats, audit.floor_loss_nats, strict=False)
    return [row for row in rows if max(row) <= rules.tie_nats]


def _ends(tokens: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return where responses of so many tokens begin, and where their last token is."""
    beyond = list(accumulate(tokens))
    filled = [(end, count) for end, count in zip(beyond, tokens, strict=True) if count]
    return [end - count for end, count in filled], [end - 1 for end, _ in filled]


def _where(run: LoadFacts) -> str:
    return f"{run.traffic}, round {run.restart + 1}"
