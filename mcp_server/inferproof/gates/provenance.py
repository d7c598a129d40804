"""Provenance: the bench worked on the very bytes that were committed, and says how."""

from inferproof.core.evidence import GradeFacts
from inferproof.core.serving_facts import ServeFacts
from inferproof.core.values import Purpose, Reason, Verdict
from inferproof.gates.base import Case, Clerk, ServiceCase

CLERK = Clerk("provenance", __name__)
NOTHING_DRAWN = "0" * 64
ELSEWHERE = "Name a target with that accelerator; here this is practice."


class Provenance:
    """Passes when every digest agrees and the draw and the separation are on record."""

    name = CLERK.gate

    def judge(self, case: Case | ServiceCase) -> Verdict:
        """Return whether the evidence is about this candidate and this contract."""
        facts = case.evidence.grade or case.evidence.serve
        if facts is None:
            return CLERK.unmeasured("which bytes were graded")
        stranger = _stranger(case, facts)
        if stranger:
            return CLERK.doubts(Reason.DIGEST_MISMATCH, stranger)
        if facts.bits == NOTHING_DRAWN:
            return CLERK.unmeasured("the random bits drawn after the commit")
        if not facts.apart:
            return CLERK.unmeasured("how the candidate was kept apart")
        elsewhere = _elsewhere(case)
        if elsewhere:
            return CLERK.doubts(Reason.NOT_MEASURED, elsewhere, ELSEWHERE)
        return CLERK.passes(f"judged as committed; kept apart by {facts.apart}")


def _elsewhere(case: Case | ServiceCase) -> str:
    """Return on which accelerator a graded kernel ran, if it is not the one that counts."""
    grade, purpose = case.evidence.grade, case.evidence.purpose
    if isinstance(case, ServiceCase) or grade is None or purpose is not Purpose.GRADED:
        return ""
    seen = grade.gpu.name if grade.gpu else "no accelerator"
    if case.accelerator in (None, seen):
        return ""
    return f"measured on {seen}; in this campaign only {case.accelerator} counts"


def _stranger(case: Case | ServiceCase, facts: GradeFacts | ServeFacts) -> str:
    names = (
        ("candidate named in the evidence", case.evidence.candidate, case.candidate),
        ("candidate on the bench", facts.candidate_seen, case.candidate),
        ("contract named in the evidence", case.evidence.contract, case.contract_digest),
        ("contract on the bench", facts.contract_seen, case.contract_digest),
    )
    for what, seen, committed in names:
        if seen != committed:
            return f"the {what} is {(seen or 'nothing')[:12]}, committed was {committed[:12]}"
    return ""
