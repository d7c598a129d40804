"""Conduct: the candidate kept to the protocol and to its limits in every call."""

from collections.abc import Sequence

from inferproof.core.evidence import GradeFacts, Incident
from inferproof.core.values import Purpose, Reason, Verdict
from inferproof.gates.base import Case, Clerk, bench_words

CLERK = Clerk("conduct", __name__)
SANITIZER_TOOLS: frozenset[str] = frozenset({"memcheck", "racecheck", "initcheck", "synccheck"})
NEXT_STEPS = {
    Reason.PROTOCOL_FORGED: "Leave the harness's channels alone; only outputs are read.",
    Reason.EARLY_START: "Start no work before the call: the inputs are not there yet.",
    Reason.LATE_FINISH: "Finish and join all work before the entry function returns.",
    Reason.RAN_WHILE_FROZEN: "Leave nothing running between calls.",
    Reason.GUARD_OVERWRITTEN: "Write only inside the outputs; check the bounds at odd sizes.",
    Reason.INPUT_MUTATED: "Leave the inputs as they are; the contract does not list them as "
    "mutated.",
    Reason.OUTPUT_UNWRITTEN: "Write every element of every output, for odd sizes too.",
    Reason.STALE_OUTPUT: "Compute from the present inputs on each call.",
    Reason.NOT_REPEATABLE: "Remove the race: the same inputs gave different outputs.",
    Reason.SANITIZER: "Run it under compute-sanitizer on a small odd shape; mend what that finds.",
    Reason.CRASHED: "Reproduce the crash on a practice shape, with a sanitizer if it is C++.",
    Reason.TIMED_OUT: "Make one call end within the campaign's limit.",
    Reason.MEMORY_EXCEEDED: "Use less memory than the campaign's limit.",
    Reason.DISK_EXCEEDED: "Write less to the private temporary folder.",
    Reason.PROCESS_LIMIT: "Start fewer threads and processes.",
}
WORST_FIRST = tuple(NEXT_STEPS)
_ABSENT = "compute-sanitizer is not on this target"


class Conduct:
    """Passes when nothing happened that decides without numbers."""

    name = CLERK.gate

    def judge(self, case: Case) -> Verdict:
        """Return whether the candidate behaved."""
        grade = case.evidence.grade
        if grade is None or not (grade.calls or grade.incidents):
            return CLERK.unmeasured("any call")
        if not grade.incidents:
            return _unsanitized(case) or CLERK.passes(
                f"{len(grade.calls)} calls, nothing untoward{_told(grade)}"
            )
        incident = deciding_incident(grade.incidents)
        where = "" if incident.call is None else f" in call {incident.call}"
        reason = f"{incident.code.value}{where}: {bench_words(incident)}"
        if incident.code not in NEXT_STEPS:
            return CLERK.doubts(Reason.INFRASTRUCTURE, reason)
        return CLERK.fails(incident.code, reason, NEXT_STEPS[incident.code])


def _unsanitized(case: Case) -> Verdict | None:
    """Return why a graded check of device code lacks compute-sanitizer's word.

    Where the contract does not require it, only a target that has none passes without: a kernel
    that keeps it from its end could do so on purpose.
    """
    grade = case.evidence.grade
    if grade is None or grade.gpu is None or case.evidence.purpose is not Purpose.GRADED:
        return None
    found = grade.gpu.sanitizer or ()
    ran = {str(each.tool) for each in found if each.errors is not None}
    is_absent = not found or any(each.why.startswith(_ABSENT) for each in found)
    if not SANITIZER_TOOLS - ran or (is_absent and case.contract.sanitizer != "required"):
        return None
    why = next((each.why for each in found if each.errors is None), "it was not asked")
    reason = f"not measured: compute-sanitizer: {why}"
    return CLERK.doubts(Reason.NOT_MEASURED, reason, why)


def _told(grade: GradeFacts) -> str:
    found = grade.gpu.sanitizer if grade.gpu else None
    if found is None:
        return ""
    left = [each for each in found if each.errors is None]
    if left:
        return f"; compute-sanitizer not measured ({left[0].tool}: {left[0].why})"
    return "; compute-sanitizer found nothing"


def deciding_incident(incidents: Sequence[Incident]) -> Incident:
    """Return the worst incident of the first call that had one; later ones may be its effects.

    What is not the candidate's doing counts as least bad within a call.
    """
    first = incidents[0].call
    return min((each for each in incidents if each.call == first), key=_rank)


def _rank(incident: Incident) -> int:
    return WORST_FIRST.index(incident.code) if incident.code in WORST_FIRST else len(WORST_FIRST)
