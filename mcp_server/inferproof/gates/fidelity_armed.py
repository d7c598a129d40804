"""Fidelity armed: the fidelity rules have refused every mutant that this contract names."""

from inferproof.core.service import ServiceContract
from inferproof.core.serving_facts import MutantScores
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase
from inferproof.gates.fidelity import NEXT_STEPS, find_faults

CLERK = Clerk("fidelity_armed", __name__)
REARM = "Nothing to change in the candidate: run the check again so that the mutants are measured."


class FidelityArmed:
    """Passes when the rules refuse each mutant: the reference model with one known fault."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the fidelity gate has proved itself on this contract."""
        serve = case.arming or case.evidence.serve
        if serve is None or serve.mutants is None:
            return CLERK.doubts(Reason.NOT_ARMED, "the mutants of this contract never ran", REARM)
        if serve.contract_seen != case.contract_digest:
            return CLERK.doubts(Reason.NOT_ARMED, "the mutants ran under another contract", REARM)
        left = survivors(case.contract, serve.mutants)
        if left:
            return CLERK.doubts(
                Reason.NOT_ARMED,
                f"the contract cannot tell these mutants from the model: {', '.join(left)}",
                "Ask the person in charge to tighten the contract and seal it again.",
            )
        return CLERK.passes(f"all {len(case.contract.fidelity.mutants)} mutants were refused")


def survivors(contract: ServiceContract, mutants: tuple[MutantScores, ...]) -> tuple[str, ...]:
    """Return the mutants of `contract` that no rule refused, or that did not run."""
    refused = {
        mutant.name
        for mutant in mutants
        if any(each.code in NEXT_STEPS for each in find_faults(mutant.scores, contract.fidelity))
    }
    return tuple(name for name in contract.fidelity.mutants if name not in refused)
