"""How often a speed was asked for before: who tries often is held to wider intervals."""

from itertools import takewhile

from inferproof.core.serving_facts import EarlierTries
from inferproof.core.values import Entry, Purpose, Reason
from inferproof.docket import Docket
from inferproof.ledger.bodies import Attempt

SPEED_TOOLS = ("run_aiperf", "promote")
FINAL_TOOL = "promote"


def earlier_tries(docket: Docket, attempt: Attempt, seal: Entry) -> EarlierTries | None:
    """Return what was asked of the attempt's contract between the seal and it; None in practice.

    A try counts however it ended: whoever sees that it goes badly could cancel it, crash, or have a
    luckier one judged first. Only what was refused as asked once too often is none.
    """
    if attempt.purpose is not Purpose.GRADED or attempt.contract is None:
        return None
    earlier = takewhile(lambda pair: pair[0].job_id != attempt.job_id, docket.attempts())
    before = [
        other
        for other, entry in earlier
        if entry.seq > seal.seq
        and other.contract == attempt.contract
        and other.purpose is Purpose.GRADED
        and other.tool in SPEED_TOOLS
        and not _was_used_up(docket, other)
    ]
    final = [each for each in before if each.tool == FINAL_TOOL]
    same = [each for each in final if each.candidate == attempt.candidate]
    return EarlierTries(graded=len(before), final=len(same) if attempt.tool == FINAL_TOOL else 0)


def _was_used_up(docket: Docket, attempt: Attempt) -> bool:
    ended = docket.outcome(attempt.job_id)
    return ended is not None and any(v.code is Reason.FINAL_USED for v in ended[0].verdicts)
