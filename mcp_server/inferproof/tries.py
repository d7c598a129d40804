"""How often a speed was judged before: who tries often is held to wider intervals."""

from inferproof.core.serving_facts import EarlierTries
from inferproof.core.values import Entry, Purpose, Reason
from inferproof.docket import Docket
from inferproof.ledger.bodies import Attempt, OutcomeOfJob

SPEED_GATE = "objectives"
FINAL_TOOL = "promote"


def earlier_tries(docket: Docket, attempt: Attempt, seal: Entry) -> EarlierTries | None:
    """Return what was judged on the attempt's contract since the seal; None for an open try.

    A run that was refused before its speed counted has taught nobody anything about the traffic.
    """
    if attempt.purpose is not Purpose.GRADED or attempt.contract is None:
        return None
    before = [
        other
        for other, entry in docket.attempts()
        if entry.seq > seal.seq
        and other.job_id != attempt.job_id
        and other.contract == attempt.contract
        and other.purpose is Purpose.GRADED
        and (ended := docket.outcome(other.job_id)) is not None
        and _judged_speed(ended[0])
    ]
    final = [each for each in before if each.tool == FINAL_TOOL]
    same = [each for each in final if each.candidate == attempt.candidate]
    return EarlierTries(graded=len(before), final=len(same) if attempt.tool == FINAL_TOOL else 0)


def _judged_speed(outcome: OutcomeOfJob) -> bool:
    verdicts = (each for each in outcome.verdicts if each.gate == SPEED_GATE)
    return any(each.code not in (Reason.NOT_MEASURED, Reason.FINAL_USED) for each in verdicts)
