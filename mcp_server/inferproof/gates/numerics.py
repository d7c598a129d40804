"""Numerics: every checked output is as near to the float64 reference as the contract asks.

The rule of one output, in this order:

1. poison left in it: `output_unwritten`; NaN or infinity in the wrong place: `nan_mismatch`;
2. either ratio is missing: not measured;
3. both ratios within the contract's tolerance: accepted;
4. it equals what an *earlier* call should have written: `stale_output`;
5. both ratios no larger than the step to the next lower dtype explains: `precision_lost`;
   anything larger: `wrong_values`.

Outputs that are all accepted are then held together against `cut_share` and `mean_over_yardstick`,
timed calls and others apart: more is `precision_lost`. The floor of one tile is a whole roundoff,
which hides an error twice that of rounding; all tiles together do not hide it.

The ratios are in units of the yardstick's error, which is at least the roundoff of the floor
dtype. Working in the next lower dtype (f32 for f64, bf16 for f32, an 8-bit float for both 16-bit
ones) multiplies a roundoff error by 2 to the power of the significand bits that it lacks; sums
add two more. Values that have nothing to do with the right ones are off by the whole significand.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from inferproof.core.contract import DType, KernelContract, Tolerance
from inferproof.core.evidence import CallFacts, GradeFacts, OutputError
from inferproof.core.values import Purpose, Reason, Verdict
from inferproof.gates.base import Case, Clerk, measured, shape_text

CLERK = Clerk("numerics", __name__)
ACCUMULATION_BITS = 2
LEAST_CARRIED = 200
LEAST_TILES = 32
LEAST_LAUNCHES = 3
ROUND = "Round the last step to the nearest value of the output's dtype, ties to even."
LOST_BITS = {DType.F64: 53 - 24, DType.F32: 24 - 8, DType.F16: 11 - 4, DType.BF16: 8 - 4}
WORST_FIRST = (
    Reason.OUTPUT_UNWRITTEN,
    Reason.NAN_MISMATCH,
    Reason.STALE_OUTPUT,
    Reason.WRONG_VALUES,
    Reason.PRECISION_LOST,
    Reason.NOT_MEASURED,
    Reason.ACCEPTED,
)
PROVES_A_CAUSE = (Reason.OUTPUT_UNWRITTEN, Reason.STALE_OUTPUT)
NEXT_STEPS = {
    Reason.OUTPUT_UNWRITTEN: "Write every element of every output, for odd sizes too.",
    Reason.NAN_MISMATCH: "Give NaN and infinity exactly where the reference does; look for "
    "overflow and for division by zero.",
    Reason.STALE_OUTPUT: "Compute from the present inputs on each call; keep nothing between "
    "calls but what the contract lets you prepare.",
    Reason.WRONG_VALUES: "Compare with the contract's formula on the practice shapes, at sizes "
    "that are no multiple of your blocks.",
    Reason.PRECISION_LOST: "Accumulate in a wider type; the error is that of a lower precision.",
}


class Numerics:
    """Passes when enough calls of each phase were checked and every one is near enough."""

    name = CLERK.gate

    def judge(self, case: Case) -> Verdict:
        """Return whether the candidate computes what the contract asks."""
        grade = case.evidence.grade
        if grade is None:
            return CLERK.unmeasured("any output")
        checked = [call for call in grade.calls if call.checked]
        reasons = [judge_call(call, case.contract) for call in checked]
        code = _name_failure(reasons)
        if code:
            return _refusal(case, code, checked[reasons.index(code)])
        lost = lost_together(checked, case.contract.tolerance)
        if lost:
            return CLERK.fails(Reason.PRECISION_LOST, lost, ROUND)
        if Reason.NOT_MEASURED in reasons:
            return CLERK.unmeasured(_where(checked[reasons.index(Reason.NOT_MEASURED)]))
        missing = _missing(case, grade, checked)
        if missing:
            return CLERK.unmeasured(missing)
        return CLERK.passes(f"{len(checked)} of {len(grade.calls)} calls checked, all near enough")


def judge_call(call: CallFacts, contract: KernelContract) -> Reason:
    """Return the worst that can be said of one call's outputs; ACCEPTED when nothing can."""
    found = [judge_output(error, contract.tolerance) for error in call.outputs.values()]
    written = {*contract.outputs, *contract.mutates}
    is_whole = written <= set(call.outputs) and set(contract.dims) <= set(call.dims)
    if not is_whole or not measured(call.seconds):
        found.append(Reason.NOT_MEASURED)
    return min(found, key=WORST_FIRST.index)


def lost_together(calls: Sequence[CallFacts], tolerance: Tolerance) -> str:
    """Return what all outputs together have lost; empty if nothing."""
    timed = [call for call in calls if call.phase == "timed"]
    others = [call for call in calls if call.phase != "timed"]
    for errors in (*_by_name(timed).values(), *_by_name(others).values()):
        bar = tolerance.mean_over_yardstick
        if bar is not None and _mean_error(errors) > bar:
            return f"{Reason.PRECISION_LOST.value}: all outputs together are off by a lost bit"
        if _cut_share(errors) > (tolerance.cut_share or 1.0):
            return f"{Reason.PRECISION_LOST.value}: outputs are cut to their dtype, not rounded"
    return ""


def _by_name(calls: Sequence[CallFacts]) -> Mapping[str, list[OutputError]]:
    found: dict[str, list[OutputError]] = {}
    for call in calls:
        for name, error in call.outputs.items():
            found.setdefault(name, []).append(error)
    return found


def _cut_share(errors: Sequence[OutputError]) -> float:
    carried = sum(error.carried or 0 for error in errors)
    cut = sum(error.cut or 0 for error in errors)
    return cut / carried if carried >= LEAST_CARRIED else 0.0


def _mean_error(errors: Sequence[OutputError]) -> float:
    """Return the root mean square over all tiles; too few say nothing."""
    tiles = sum(error.tiles or 0 for error in errors)
    squares = sum(error.tile_squares or 0.0 for error in errors)
    return math.sqrt(squares / tiles) if tiles >= LEAST_TILES else 0.0


def judge_output(error: OutputError, tolerance: Tolerance) -> Reason:
    """Return what can be said of one output."""
    if error.unwritten > 0:
        return Reason.OUTPUT_UNWRITTEN
    if error.nan_mismatches > 0:
        return Reason.NAN_MISMATCH
    rms, p999 = error.rms_ratio, error.p999_ratio
    if not (measured(rms) and measured(p999) and _is_counted(error, tolerance)):
        return Reason.NOT_MEASURED
    if rms <= tolerance.rms_over_yardstick and p999 <= tolerance.p999_over_yardstick:
        return Reason.ACCEPTED
    if error.stale_of is not None:
        return Reason.STALE_OUTPUT
    lower_dtype = 2.0 ** (LOST_BITS.get(tolerance.floor, 0) + ACCUMULATION_BITS)
    return Reason.PRECISION_LOST if max(rms, p999) <= lower_dtype else Reason.WRONG_VALUES


def _is_counted(error: OutputError, tolerance: Tolerance) -> bool:
    counts = error.carried is None or error.cut is None
    sums = error.tiles is None or not measured(error.tile_squares)
    return not (counts and tolerance.cut_share) and not (sums and tolerance.mean_over_yardstick)


def is_failure(reason: Reason) -> bool:
    """Return whether `reason` refuses a call, as against accepting or not knowing."""
    return reason not in (Reason.ACCEPTED, Reason.NOT_MEASURED)


def _name_failure(reasons: Sequence[Reason]) -> Reason | None:
    """Return the code of all failures together: a proved cause first, else the commonest."""
    failures = Counter(filter(is_failure, reasons))
    for cause in PROVES_A_CAUSE:
        if cause in failures:
            return cause
    return min(failures, key=lambda r: (-failures[r], WORST_FIRST.index(r)), default=None)


def _missing(case: Case, grade: GradeFacts, checked: Sequence[CallFacts]) -> str:
    counts = Counter(call.phase for call in checked)
    graded = case.evidence.purpose is Purpose.GRADED
    needed = {
        "numerics": case.contract.workloads.graded.draw if graded else 1,
        "near_duplicate": 1,
        "repeat": 1,
    }
    for phase, least in needed.items():
        if counts[phase] < least:
            return f"{phase} calls: {counts[phase]} checked, {least} needed"
    launches = len({call.launch for call in checked})
    if graded and grade.gpu is None and launches < LEAST_LAUNCHES:
        return f"launches: {launches} checked, {LEAST_LAUNCHES} needed"
    timed_shapes = [call.dims for call in checked if call.phase == "timed"]
    for workload in grade.timed:
        if workload.dims not in timed_shapes:
            return f"any timed output at {shape_text(workload.dims)}"
    return ""


def _refusal(case: Case, code: Reason, call: CallFacts) -> Verdict:
    figures = f"; {_figures(call)}" if case.shows_numbers else ""
    return CLERK.fails(code, f"{code.value} in {_where(call)}{figures}", NEXT_STEPS[code])


def _where(call: CallFacts) -> str:
    return f"{call.phase} call {call.index} ({call.family}; {shape_text(call.dims)})"


def _figures(call: CallFacts) -> str:
    return "; ".join(
        f"{name}: rms {_ratio(error.rms_ratio)}, p99.9 {_ratio(error.p999_ratio)} of the "
        f"yardstick's error, {error.bad_share:.1%} bad, worst tile {error.worst_tile}"
        for name, error in call.outputs.items()
    )


def _ratio(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3g}x"
