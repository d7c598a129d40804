"""Physics: nothing is faster than the machine, and a very large gain is looked at by a person."""

from inferproof.core.evidence import Ceilings, TimedWorkload
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Case, Clerk, measured, shape_text
from inferproof.gates.intervals import candidate_seconds, is_complete, speeds

CLERK = Clerk("physics", __name__)
MARGIN = 0.9
OUTGROWS_CACHE = 2
LARGE_GAIN = 2.0
LOOK = "Ask the person in charge to look at the stored evidence and to approve or refuse it."


class Physics:
    """Passes when every time is possible on this machine and no gain is suspiciously large."""

    name = CLERK.gate

    def judge(self, case: Case) -> Verdict:
        """Return whether the times can be believed without a person."""
        grade = case.evidence.grade
        if grade is None or not grade.timed or not all(map(is_complete, grade.timed)):
            return CLERK.unmeasured("any complete time")
        if not _are_known(grade.ceilings):
            return CLERK.unmeasured("what this machine can reach")
        for workload in grade.timed:
            if candidate_seconds(workload.pairs) < MARGIN * least_seconds(workload, grade.ceilings):
                return CLERK.asks(
                    Reason.BEYOND_PHYSICS,
                    f"faster than this machine was measured to reach at "
                    f"{shape_text(workload.dims)}",
                    LOOK,
                )
        # The ratio itself: a wide interval, which a busy machine gives for nothing, hides no claim.
        largest = max(speeds(grade), key=lambda speed: speed.ratio)
        if largest.ratio > LARGE_GAIN:
            where = shape_text(largest.dims)
            return CLERK.asks(
                Reason.LARGE_CLAIM, f"more than {LARGE_GAIN:g}x the best baseline at {where}", LOOK
            )
        return CLERK.passes("every time is possible on this machine")


def least_seconds(workload: TimedWorkload, ceilings: Ceilings) -> float:
    """Return the least time in which this machine moves the bytes and does the operations.

    Bytes that may lie in the last-level cache are held against the cache's speed. A machine of
    which nothing is known can do everything in no time.
    """
    cached = workload.bytes <= OUTGROWS_CACHE * (ceilings.last_level_cache_bytes or 0)
    bytes_per_s = ceilings.cache_bytes_per_s if cached else ceilings.memory_bytes_per_s
    moving_s = workload.bytes / bytes_per_s if bytes_per_s else 0.0
    computing_s = workload.flops / ceilings.flops_per_s if ceilings.flops_per_s else 0.0
    return max(moving_s, computing_s)


def _are_known(ceilings: Ceilings) -> bool:
    values = (
        ceilings.memory_bytes_per_s,
        ceilings.cache_bytes_per_s,
        ceilings.flops_per_s,
        ceilings.last_level_cache_bytes,
    )
    return all(measured(value) and value > 0 for value in values)
