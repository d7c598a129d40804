"""How often a speed was asked for before: who tries often is held to wider intervals."""

from collections.abc import Mapping
from itertools import takewhile

from inferproof.core.sealed import SealedContract
from inferproof.core.serving_facts import EarlierTries
from inferproof.core.values import Entry, Purpose
from inferproof.docket import Docket
from inferproof.ledger.bodies import Attempt
from inferproof.orders import Order

FINAL_TOOL = "promote"
SPEED_TOOLS: Mapping[str, tuple[str, ...]] = {
    "kernel": ("check_numerics", FINAL_TOOL),
    "service": ("run_aiperf", FINAL_TOOL),
}


def earlier_tries(
    docket: Docket, attempt: Attempt, seal: Entry, contract: SealedContract | None
) -> EarlierTries | None:
    """Return what was asked of the attempt's contract between the seal and it; None in practice.

    A try counts whichever candidate it was about, since a copy with another comment is another
    candidate, and however it ended: whoever sees that it goes badly could cancel it, crash, or have
    a luckier one judged first. What is not on record yet comes after all that is.
    """
    if attempt.purpose is not Purpose.GRADED or contract is None:
        return None
    earlier = takewhile(lambda pair: pair[0].job_id != attempt.job_id, docket.attempts())
    before = [
        other.tool
        for other, entry in earlier
        if entry.seq > seal.seq
        and other.contract == attempt.contract
        and other.purpose is Purpose.GRADED
        and other.tool in SPEED_TOOLS[contract.contract.kind]
    ]
    final = before.count(FINAL_TOOL) if attempt.tool == FINAL_TOOL else 0
    return EarlierTries(graded=len(before), final=final)


def tries_before(docket: Docket, order: Order) -> int:
    """Return how many tries there are before one that is about to be recorded."""
    seal = docket.seal_in_force()
    found = earlier_tries(docket, order.attempt(None), seal, order.contract)
    return found.graded if found else 0
