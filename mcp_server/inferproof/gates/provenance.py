"""Provenance: the bench worked on the very bytes that were committed, and says how."""

from inferproof.core.evidence import GradeFacts
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Case, Clerk

CLERK = Clerk("provenance", __name__)
NOTHING_DRAWN = "0" * 64


class Provenance:
    """Passes when every digest agrees and the draw and the separation are on record."""

    name = CLERK.gate

    def judge(self, case: Case) -> Verdict:
        """Return whether the evidence is about this candidate and this contract."""
        grade = case.evidence.grade
        if grade is None:
            return CLERK.unmeasured("which bytes were graded")
        stranger = _stranger(case, grade)
        if stranger:
            return CLERK.doubts(Reason.DIGEST_MISMATCH, stranger)
        if grade.bits == NOTHING_DRAWN:
            return CLERK.unmeasured("the random bits drawn after the commit")
        if not grade.bench.sandbox:
            return CLERK.unmeasured("how the candidate was kept apart")
        return CLERK.passes(
            f"judged as committed; kept apart by {grade.bench.separation} ({grade.bench.sandbox})"
        )


def _stranger(case: Case, grade: GradeFacts) -> str:
    names = (
        ("candidate named in the evidence", case.evidence.candidate, case.candidate),
        ("candidate on the bench", grade.candidate_seen, case.candidate),
        ("contract named in the evidence", case.evidence.contract, case.contract_digest),
        ("contract on the bench", grade.contract_seen, case.contract_digest),
    )
    for what, seen, committed in names:
        if seen != committed:
            return f"the {what} is {(seen or 'nothing')[:12]}, committed was {committed[:12]}"
    return ""
