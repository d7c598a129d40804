"""Armed: the numerics rule has refused every mutant of this contract, so its pass has meaning."""

from inferproof.core.contract import KernelContract
from inferproof.core.evidence import MutantFacts
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Case, Clerk
from inferproof.gates.numerics import is_failure, judge_call, lost_together

CLERK = Clerk("armed", __name__)
REARM = "Nothing to change in the candidate: run the check again so that the mutants are graded."


class Armed:
    """Passes when every mutant that the contract names fails on at least one drawn call."""

    name = CLERK.gate

    def judge(self, case: Case) -> Verdict:
        """Return whether the numerics gate has proved itself on this contract."""
        grade = case.arming or case.evidence.grade
        if grade is None or grade.mutants is None:
            return CLERK.doubts(Reason.NOT_ARMED, "the mutants of this contract never ran", REARM)
        if grade.contract_seen != case.contract_digest:
            return CLERK.doubts(Reason.NOT_ARMED, "the mutants ran under another contract", REARM)
        left = survivors(case.contract, grade.mutants)
        if left:
            return CLERK.doubts(
                Reason.NOT_ARMED,
                f"the contract cannot tell these mutants from a right answer: {', '.join(left)}",
                "Ask the person in charge to tighten the contract and seal it again.",
            )
        return CLERK.passes(f"all {len(case.contract.mutants)} mutants were refused")


def survivors(contract: KernelContract, mutants: tuple[MutantFacts, ...]) -> tuple[str, ...]:
    """Return the mutants of `contract` that no checked call refused, or that did not run."""
    refused = {
        mutant.name
        for mutant in mutants
        if any(is_failure(judge_call(call, contract)) for call in mutant.calls if call.checked)
        or lost_together([call for call in mutant.calls if call.checked], contract.tolerance)
    }
    return tuple(name for name in contract.mutants if name not in refused)
