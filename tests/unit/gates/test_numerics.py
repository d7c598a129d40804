"""The numerics rule: what one output's errors mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from inferproof.core.contract import DType, Tolerance
from inferproof.core.evidence import CallFacts, OutputError
from inferproof.core.values import Outcome, Reason, Verdict
from inferproof.gates.numerics import Numerics, is_failure, judge_output
from unit.gates.cases import GONE, changed

BF16 = Tolerance(rms_over_yardstick=2.0, p999_over_yardstick=4.0, floor=DType.BF16)
Y = "evidence.grade.calls.{}.outputs.y.{}"

ratios = st.none() | st.floats(min_value=0, max_value=1e12)
counts = st.integers(min_value=0, max_value=5)
errors = st.builds(
    OutputError,
    rms_ratio=ratios,
    p999_ratio=ratios,
    nan_mismatches=counts,
    unwritten=counts,
    bad_share=st.floats(min_value=0, max_value=1),
    worst_tile=st.just("all"),
    stale_of=st.none() | counts,
)


def error(rms: float | None = 1.0, p999: float | None = 1.0, **others: int) -> OutputError:
    return OutputError.model_validate(
        {"rms_ratio": rms, "p999_ratio": p999, "nan_mismatches": 0, "unwritten": 0}
        | {"bad_share": 0.0, "worst_tile": "all"}
        | others
    )


def judged(changes: dict[str, JsonValue]) -> Verdict:
    return Numerics().judge(changed(changes))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (error(2.0, 4.0), Reason.ACCEPTED),
        (error(2.01, 1.0), Reason.PRECISION_LOST),
        (error(1.0, 4.01), Reason.PRECISION_LOST),
        (error(32.0, 40.0), Reason.PRECISION_LOST),
        (error(800.0, 400.0), Reason.WRONG_VALUES),
        (error(3.0, 400.0), Reason.WRONG_VALUES),
        (error(None, 1.0), Reason.NOT_MEASURED),
        (error(1.0, None), Reason.NOT_MEASURED),
        (error(None, None, nan_mismatches=1), Reason.NAN_MISMATCH),
        (error(1.0, 1.0, nan_mismatches=1), Reason.NAN_MISMATCH),
        (error(1.0, 1.0, unwritten=1), Reason.OUTPUT_UNWRITTEN),
        (error(800.0, 400.0, stale_of=2), Reason.STALE_OUTPUT),
        (error(1.0, 1.0, stale_of=2), Reason.ACCEPTED),
    ],
)
def test_one_output_is_judged(found: OutputError, expected: Reason) -> None:
    assert judge_output(found, BF16) is expected


@pytest.mark.parametrize(
    ("floor", "next_lower"),
    [(DType.F64, 2.0**29), (DType.F32, 2.0**16), (DType.F16, 2.0**3), (DType.BF16, 2.0**4)],
)
def test_the_roundoff_of_the_next_lower_dtype_is_precision_lost(
    floor: DType, next_lower: float
) -> None:
    tolerance = Tolerance(floor=floor)
    assert judge_output(error(next_lower, next_lower), tolerance) is Reason.PRECISION_LOST


@pytest.mark.parametrize(
    ("floor", "bits"), [(DType.F64, 53), (DType.F32, 24), (DType.F16, 11), (DType.BF16, 8)]
)
def test_values_off_by_their_own_size_are_wrong_and_not_imprecise(floor: DType, bits: int) -> None:
    tolerance = Tolerance(floor=floor)
    assert judge_output(error(2.0**bits, 2.0**bits), tolerance) is Reason.WRONG_VALUES


@given(errors, st.floats(1, 1e6), st.floats(1, 1e6), counts, counts)
def test_a_larger_error_never_turns_a_fail_into_a_pass(
    before: OutputError, rms: float, p999: float, nans: int, unwritten: int
) -> None:
    after = before.model_copy(
        update={
            "rms_ratio": None if before.rms_ratio is None else before.rms_ratio * rms,
            "p999_ratio": None if before.p999_ratio is None else before.p999_ratio * p999,
            "nan_mismatches": before.nan_mismatches + nans,
            "unwritten": before.unwritten + unwritten,
        }
    )
    if is_failure(judge_output(before, BF16)):
        assert is_failure(judge_output(after, BF16))
    if judge_output(after, BF16) is Reason.ACCEPTED:
        assert judge_output(before, BF16) is Reason.ACCEPTED


def test_one_bad_call_fails_the_candidate() -> None:
    assert judged({Y.format(6, "rms_ratio"): 800.0}).code is Reason.WRONG_VALUES


def test_the_commonest_failure_names_the_cause() -> None:
    lower = {Y.format(call, "rms_ratio"): 12.0 for call in (0, 1, 2, 5)}
    assert judged({**lower, Y.format(6, "rms_ratio"): 800.0}).code is Reason.PRECISION_LOST


def test_a_stale_output_names_the_cause_whatever_else_is_wrong() -> None:
    wrong: dict[str, JsonValue] = {Y.format(call, "rms_ratio"): 800.0 for call in range(7)}
    assert judged({**wrong, Y.format(3, "stale_of"): 1}).code is Reason.STALE_OUTPUT


def test_a_failure_decides_over_what_was_not_measured() -> None:
    assert judged({Y.format(1, "rms_ratio"): None, Y.format(2, "rms_ratio"): 800.0}).code is (
        Reason.WRONG_VALUES
    )


@pytest.mark.parametrize("call", range(7))
def test_each_phase_and_each_timed_shape_needs_its_checked_calls(call: int) -> None:
    verdict = judged({f"evidence.grade.calls.{call}": GONE})
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)


def test_practice_needs_one_checked_call_where_grading_needs_them_all() -> None:
    fewer: dict[str, JsonValue] = {"evidence.grade.calls.0.checked": False}
    assert judged(fewer).outcome is Outcome.INCONCLUSIVE
    assert judged({**fewer, "evidence.purpose": "practice"}).outcome is Outcome.PASS


def test_a_graded_candidate_was_started_more_than_twice() -> None:
    one: dict[str, JsonValue] = {f"evidence.grade.calls.{n}.launch": 0 for n in (1, 2)}
    assert judged(one).code is Reason.NOT_MEASURED
    assert judged({**one, "evidence.purpose": "practice"}).outcome is Outcome.PASS


def test_an_output_that_the_contract_names_must_be_there() -> None:
    assert judged({"evidence.grade.calls.2.outputs": {}}).code is Reason.NOT_MEASURED


def rounding(carried: int | None, cut: int | None, calls: range = range(7)) -> dict[str, JsonValue]:
    """Return changes: the contract bounds `cut_share`, and each of `calls` counted these."""
    changes: dict[str, JsonValue] = {"contract.tolerance.cut_share": 0.5}
    for call in range(7):
        changes[Y.format(call, "carried")] = 1000
        changes[Y.format(call, "cut")] = 250
    for call in calls:
        changes[Y.format(call, "carried")] = carried
        changes[Y.format(call, "cut")] = cut
    return changes


@pytest.mark.parametrize(
    ("carried", "cut", "code"),
    [
        (1000, 0, Reason.ACCEPTED),
        (1000, 500, Reason.ACCEPTED),
        (1000, 501, Reason.PRECISION_LOST),
        (1000, 1000, Reason.PRECISION_LOST),
        (0, 0, Reason.ACCEPTED),
        (None, 0, Reason.NOT_MEASURED),
        (1000, None, Reason.NOT_MEASURED),
    ],
)
def test_an_output_that_is_cut_where_it_should_be_rounded_has_lost_precision(
    carried: int | None, cut: int | None, code: Reason
) -> None:
    assert judged(rounding(carried, cut)).code is code


def test_cutting_in_timed_calls_alone_is_found() -> None:
    timed = [n for n, call in enumerate(honest_calls()) if call.phase == "timed"]
    assert timed
    changes = rounding(1000, 1000, range(timed[0], timed[-1] + 1))
    assert judged(changes).code is Reason.PRECISION_LOST


def test_a_contract_without_the_bound_lets_outputs_be_cut() -> None:
    changes = rounding(1000, 1000) | {"contract.tolerance.cut_share": None}
    assert judged(changes).code is Reason.ACCEPTED


def bits(mean: float, tiles: int | None, calls: range = range(7)) -> dict[str, JsonValue]:
    """Return changes: the contract bounds the mean error, and each of `calls` has this one."""
    changes: dict[str, JsonValue] = {"contract.tolerance.mean_over_yardstick": 1.7}
    for call in range(7):
        changes[Y.format(call, "tiles")] = 100
        changes[Y.format(call, "tile_squares")] = 100.0
    for call in calls:
        changes[Y.format(call, "tiles")] = tiles
        changes[Y.format(call, "tile_squares")] = mean**2 * (tiles or 0)
    return changes


@pytest.mark.parametrize(
    ("mean", "tiles", "code"),
    [
        (1.0, 100, Reason.ACCEPTED),
        (1.69, 100, Reason.ACCEPTED),
        (1.71, 100, Reason.PRECISION_LOST),
        (2.0, 4, Reason.ACCEPTED),
        (1.0, 0, Reason.ACCEPTED),
        (1.0, None, Reason.NOT_MEASURED),
    ],
)
def test_an_output_with_fewer_bits_than_its_dtype_has_lost_precision(
    mean: float, tiles: int | None, code: Reason
) -> None:
    assert judged(bits(mean, tiles)).code is code


def test_fewer_bits_in_timed_calls_alone_are_found() -> None:
    timed = [n for n, call in enumerate(honest_calls()) if call.phase == "timed"]
    changes = bits(2.0, 100, range(timed[0], timed[-1] + 1))
    assert judged(changes).code is Reason.PRECISION_LOST


def honest_calls() -> tuple[CallFacts, ...]:
    grade = changed({}).evidence.grade
    assert grade is not None
    return grade.calls
