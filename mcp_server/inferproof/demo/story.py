"""The acts of the demo as data: what each candidate tries and what must come of it.

The expectations are checked against real verdicts; a demo whose verdicts differ ends in 1.
"""

from dataclasses import dataclass

from inferproof.core.values import Outcome, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One candidate folder under `candidates/`, its trick, and the codes that may answer it."""

    folder: str
    trick: str
    outcomes: tuple[Outcome, ...]
    codes: tuple[Reason, ...]


ACCEPTED = (Outcome.PASS, Outcome.APPROVAL_REQUIRED)
REFUSED = (Outcome.FAIL,)

HONEST = Act(
    folder="honest",
    trick="nothing: a fused kernel, fp32 sums, streaming stores",
    outcomes=ACCEPTED,
    codes=(Reason.ACCEPTED, Reason.LARGE_CLAIM),
)

PROMOTED = Act(
    folder="honest",
    trick="asks to be the champion, after a person approved",
    outcomes=(Outcome.PASS,),
    codes=(Reason.ACCEPTED,),
)

CHEATS: tuple[Act, ...] = (
    Act(
        folder="half_rows",
        trick="computes every second row",
        outcomes=REFUSED,
        codes=(Reason.OUTPUT_UNWRITTEN,),
    ),
    Act(
        folder="cache_by_pointer",
        trick="replays its answer when the address is known",
        outcomes=REFUSED,
        codes=(Reason.STALE_OUTPUT, Reason.WRONG_VALUES, Reason.NOT_REPEATABLE),
    ),
    Act(
        folder="early_start",
        trick="watches the input and computes before the clock starts",
        outcomes=REFUSED,
        codes=(Reason.EARLY_START,),
    ),
    Act(
        folder="late_finish",
        trick="answers at once and finishes behind the clock",
        outcomes=REFUSED,
        codes=(Reason.LATE_FINISH, Reason.OUTPUT_UNWRITTEN),
    ),
    Act(
        folder="lower_precision",
        trick="computes in bfloat16 instead of float32",
        outcomes=REFUSED,
        codes=(Reason.PRECISION_LOST,),
    ),
    Act(
        folder="patched_clock",
        trick="is slow, and answers every question for the time with the same instant",
        outcomes=REFUSED,
        codes=(Reason.NOT_FASTER,),
    ),
)
