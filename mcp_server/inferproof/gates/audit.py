"""Audit: responses of the scored runs themselves are what the reference model would say."""

import math

from inferproof.core.serving_facts import LoadFacts
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase

CLERK = Clerk("audit", __name__)
NEXT_STEP = "Serve load by the path that check_numerics checked; compare outputs under load."


class Audited:
    """Passes when, in every run of the candidate, almost all greedy tokens are the reference's."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the traffic that was timed was answered by this model."""
        serve = case.evidence.serve
        runs = [] if serve is None else [run for run in serve.loads if run.arm == "candidate"]
        if not runs:
            return CLERK.unmeasured("any load run")
        rules = case.contract.audit
        tokens = 0
        for run in runs:
            where = f"{run.traffic}, round {run.restart + 1}"
            wanted = min(rules.responses, run.asked)
            if run.audit is None or run.audit.responses < wanted or not run.audit.tie_gap_nats:
                return CLERK.unmeasured(f"{wanted} responses of {where}")
            gaps = run.audit.tie_gap_nats
            off = sum(not gap <= rules.tie_nats for gap in gaps)
            if off > allowed(len(gaps), rules.off_share_at_most):
                return CLERK.fails(
                    Reason.AUDIT_FAILED,
                    f"{off} of {len(gaps)} tokens served in {where} are not the model's",
                    NEXT_STEP,
                )
            tokens += len(gaps)
        return CLERK.passes(
            f"{tokens} tokens of {_responses(runs)} served responses are the model's"
        )


def allowed(tokens: int, share: float) -> int:
    """Return how many tokens may be off: the share, and what chance adds in a small sample."""
    expected = share * tokens
    return math.floor(expected + 2 * math.sqrt(expected))


def _responses(runs: list[LoadFacts]) -> int:
    return sum(run.audit.responses for run in runs if run.audit)
