"""The acts of the demo as data: what each candidate tries and what must come of it.

The expectations are checked against real verdicts; a demo whose verdicts differ ends in 1.
"""

from dataclasses import dataclass

from inferproof.core.values import Outcome, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One candidate folder, its trick, and the codes that may answer it.

    `base` is the folder whose files it changes; `tool` is what judges it.
    """

    folder: str
    base: str | None = None
    tool: str = "check_numerics"
    trick: str
    outcomes: tuple[Outcome, ...]
    codes: tuple[Reason, ...]


ACCEPTED = (Outcome.PASS, Outcome.APPROVAL_REQUIRED)
REFUSED = (Outcome.FAIL,)

HONEST = Act(
    folder="candidates/honest",
    trick="nothing: a fused kernel, fp32 sums, streaming stores",
    outcomes=ACCEPTED,
    codes=(Reason.ACCEPTED, Reason.LARGE_CLAIM),
)

PROMOTED = Act(
    folder="candidates/honest",
    trick="asks to be the champion, after a person approved",
    outcomes=(Outcome.PASS,),
    codes=(Reason.ACCEPTED,),
)

CHEATS: tuple[Act, ...] = (
    Act(
        folder="candidates/half_rows",
        trick="computes every second row",
        outcomes=REFUSED,
        codes=(Reason.OUTPUT_UNWRITTEN,),
    ),
    Act(
        folder="candidates/cache_by_pointer",
        trick="replays its answer when the address is known",
        outcomes=REFUSED,
        codes=(Reason.STALE_OUTPUT, Reason.WRONG_VALUES, Reason.NOT_REPEATABLE),
    ),
    Act(
        folder="candidates/early_start",
        trick="watches the input and computes before the clock starts",
        outcomes=REFUSED,
        codes=(Reason.EARLY_START,),
    ),
    Act(
        folder="candidates/late_finish",
        trick="answers at once and finishes behind the clock",
        outcomes=REFUSED,
        codes=(Reason.LATE_FINISH, Reason.OUTPUT_UNWRITTEN),
    ),
    Act(
        folder="candidates/lower_precision",
        trick="computes in bfloat16 instead of float32",
        outcomes=REFUSED,
        codes=(Reason.PRECISION_LOST,),
    ),
    Act(
        folder="candidates/patched_clock",
        trick="is slow, and answers every question for the time with the same instant",
        outcomes=REFUSED,
        codes=(Reason.NOT_FASTER,),
    ),
)

ENGINE = Act(
    folder="engines/static_cache",
    trick="nothing: plain torch, fused projections, static KV cache, batched decode",
    outcomes=(Outcome.PASS,),
    codes=(Reason.ACCEPTED,),
)

# The same engine under the sealed traffic, behind the balancer. It is right; by how much it is
# faster, per metric, this machine decides, or that it is too slow for its own load generator.
LOADED = Act(
    folder="engines/static_cache",
    trick="serves the sealed traffic as 2 replicas, beside the baseline",
    tool="run_aiperf",
    outcomes=(Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL),
    codes=(
        Reason.ACCEPTED,
        Reason.BELOW_RESOLUTION,
        Reason.MIXED_RESULT,
        Reason.CLIENT_SATURATED,
    ),
)

ENGINE_CHEATS: tuple[Act, ...] = (
    Act(
        folder="engines/repeats_a_token",
        base="engines/static_cache",
        trick="says one token again and again, very fast",
        outcomes=REFUSED,
        codes=(Reason.WRONG_TOKENS, Reason.UNFAITHFUL),
    ),
    Act(
        folder="engines/cuts_context",
        base="engines/static_cache",
        trick="reads only the last 64 tokens of a long prompt",
        outcomes=REFUSED,
        codes=(Reason.UNFAITHFUL, Reason.WRONG_TOKENS),
    ),
    Act(
        folder="engines/wrong_decode",
        base="engines/static_cache",
        trick="scores prompts right and forgets its newest token when it decodes",
        outcomes=REFUSED,
        codes=(Reason.UNFAITHFUL, Reason.WRONG_TOKENS),
    ),
)
