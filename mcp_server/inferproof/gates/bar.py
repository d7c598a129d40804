"""Bar: where the contract asks for plain search, the baseline has the options that it found."""

from inferproof.core.values import Purpose, Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase

CLERK = Clerk("bar", __name__)
SEARCH = "Call search_config until it is done, then measure again: the bar is a tuned baseline."


class Bar:
    """Passes when the baseline is tuned, the contract asks for no search, or it is practice."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the candidate was held against what it must beat."""
        serve = case.evidence.serve
        if serve is None:
            return CLERK.unmeasured("any run")
        if case.contract.search is None:
            return CLERK.passes("the contract's own baseline is the bar")
        bar = serve.bar
        if bar is not None and bar.search is not None:
            return CLERK.passes(f"the baseline is tuned by search, evidence {bar.search[:12]}")
        reason = "the contract asks for a tuned baseline, and no search is done"
        if case.evidence.purpose is Purpose.GRADED:
            return CLERK.doubts(Reason.BAR_NOT_TUNED, reason, SEARCH)
        return CLERK.passes(f"practice, against the contract's own options: {reason}")
