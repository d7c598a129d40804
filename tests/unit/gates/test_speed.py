"""Ratios, their intervals, and what may not be claimed from them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from inferproof.core.evidence import GradeFacts, TimedPair
from inferproof.core.values import Outcome, Reason, Verdict
from inferproof.gates.base import Case
from inferproof.gates.intervals import speeds
from inferproof.gates.physics import Physics, least_seconds
from inferproof.gates.speed import Speedup
from unit.gates.cases import GONE, changed, honest

TIMED = "evidence.grade.timed"


def grade_of(case: Case) -> GradeFacts:
    assert case.evidence.grade
    return case.evidence.grade


def timed(*arms: tuple[float, float, float], objective: float = 1.02) -> Case:
    """Return the honest case with both shapes timed as rounds of (candidate, baseline, null)."""
    pairs = tuple(
        TimedPair(candidate_s=candidate, baselines_s={"torch": baseline}, null_s=null)
        for candidate, baseline, null in arms
    )
    grade = grade_of(honest())
    shapes = tuple(each.model_copy(update={"pairs": pairs}) for each in grade.timed)
    absent = {"torch.compile": "not on this machine"}
    grade = grade.model_copy(update={"timed": shapes, "absent_baselines": absent})
    evidence = honest().evidence.model_copy(update={"grade": grade})
    return honest().model_copy(update={"evidence": evidence, "speedup_at_least": objective})


def judged(changes: dict[str, JsonValue]) -> Verdict:
    return Speedup().judge(changed(changes))


def test_the_ratio_takes_the_harness_cost_off_both_arms() -> None:
    (speed, _) = speeds(grade_of(timed(*[(1.1, 2.1, 0.1)] * 6)))
    assert speed.ratio == pytest.approx(2.0)
    assert (speed.low, speed.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert speed.best_baseline == "torch"


def test_the_best_baseline_is_the_one_to_beat() -> None:
    assert {speed.best_baseline for speed in speeds(grade_of(honest()))} == {"torch.compile"}


def test_the_interval_holds_the_ratio_and_repeats() -> None:
    rounds = [(1.0 + 0.05 * i, 1.5 - 0.03 * i, 0.001) for i in range(8)]
    first, again = (speeds(grade_of(timed(*rounds)))[0] for _ in range(2))
    assert first == again
    assert first.low < first.ratio < first.high


def test_a_cost_of_the_harness_that_swings_gives_no_endless_ratio() -> None:
    rounds = [(1.0, 1.0, 0.05 if i % 2 else 0.95) for i in range(20)]
    speed = speeds(grade_of(timed(*rounds)))[0]
    assert speed.high < 3
    assert Speedup().judge(timed(*rounds)).code is Reason.BELOW_RESOLUTION


def test_a_noisy_gain_is_not_proved_either_way() -> None:
    noisy = [(1.0 + 0.4 * (i % 3), 1.15, 0.001) for i in range(9)]
    verdict = Speedup().judge(timed(*noisy))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.BELOW_RESOLUTION)


def test_a_loss_beyond_the_noise_is_a_fail() -> None:
    noisy = [(1.3 + 0.1 * (i % 3), 1.15, 0.001) for i in range(9)]
    verdict = Speedup().judge(timed(*noisy))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Reason.NOT_FASTER)


def test_one_slow_shape_fails_the_candidate() -> None:
    slow: dict[str, JsonValue] = {f"{TIMED}.1.pairs.{i}.candidate_s": 0.02 for i in range(5)}
    verdict = judged(slow)
    assert verdict.code is Reason.NOT_FASTER
    assert "tokens=4001" in verdict.reason


def test_the_objective_itself_is_enough() -> None:
    assert Speedup().judge(timed(*[(1.0, 1.5, 0.0)] * 5, objective=1.5)).outcome is Outcome.PASS
    assert Speedup().judge(timed(*[(1.0, 1.5, 0.0)] * 5, objective=1.51)).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    "rounds",
    [
        [(1.0, 9.0, 0.21)] * 5,
        [(0.1, 9.0, 0.1)] * 5,
        [(1.0, 9.0, null) for null in (0.0, 0.0, 0.1, 0.6, 0.6)],
    ],
    ids=["harness is a fifth", "nothing left", "harness too unsteady"],
)
def test_what_is_too_short_to_time_is_inconclusive(
    rounds: list[tuple[float, float, float]],
) -> None:
    verdict = Speedup().judge(timed(*rounds))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.BELOW_RESOLUTION)


def test_too_short_is_no_reason_to_call_a_candidate_slow() -> None:
    assert Speedup().judge(timed(*[(0.1, 0.1, 0.1)] * 5)).code is Reason.BELOW_RESOLUTION


@pytest.mark.parametrize(
    "path", [f"{TIMED}.0", f"{TIMED}.0.pairs.0", f"{TIMED}.1.pairs.2.baselines_s.torch"]
)
def test_a_missing_shape_round_or_arm_is_not_measured(path: str) -> None:
    assert judged({path: GONE}).code is Reason.NOT_MEASURED


def test_a_baseline_may_be_missing_only_when_recorded_as_impossible() -> None:
    without = timed(*[(1.0, 1.5, 0.0)] * 5)
    silent = grade_of(without).model_copy(update={"absent_baselines": {}})
    evidence = without.evidence.model_copy(update={"grade": silent})
    assert "not compared with torch.compile" in Speedup().judge(without).reason
    verdict = Speedup().judge(without.model_copy(update={"evidence": evidence}))
    assert verdict.code is Reason.NOT_MEASURED


seconds = st.floats(min_value=1e-6, max_value=1.0)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(seconds, seconds, seconds), min_size=5, max_size=7),
    st.floats(min_value=0, max_value=10),
)
def test_a_slower_candidate_never_turns_not_faster_into_a_pass(
    rounds: list[tuple[float, float, float]], shift_s: float
) -> None:
    before = Speedup().judge(timed(*rounds))
    after = Speedup().judge(timed(*[(c + shift_s, b, n) for c, b, n in rounds]))
    if before.code is Reason.NOT_FASTER:
        assert after.code is Reason.NOT_FASTER


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(seconds, seconds), min_size=5, max_size=7))
def test_slower_baselines_never_make_a_candidate_look_slower(
    rounds: list[tuple[float, float]],
) -> None:
    before = speeds(grade_of(timed(*[(c, b, 0.0) for c, b in rounds])))[0]
    after = speeds(grade_of(timed(*[(c, 2 * b, 0.0) for c, b in rounds])))[0]
    assert after.low >= before.low


def test_large_bytes_are_held_against_memory_and_small_ones_against_cache() -> None:
    grade = grade_of(honest())
    ceilings = grade.ceilings
    assert ceilings.last_level_cache_bytes
    assert ceilings.memory_bytes_per_s
    assert ceilings.cache_bytes_per_s
    small = grade.timed[0].model_copy(update={"bytes": 2.0 * ceilings.last_level_cache_bytes})
    large = grade.timed[0].model_copy(update={"bytes": 2.0 * ceilings.last_level_cache_bytes + 1})
    assert least_seconds(small, ceilings) == small.bytes / ceilings.cache_bytes_per_s
    assert least_seconds(large, ceilings) == large.bytes / ceilings.memory_bytes_per_s


def test_operations_bound_the_time_too() -> None:
    verdict = Physics().judge(changed({f"{TIMED}.0.flops": 1e12}))
    assert (verdict.outcome, verdict.code) == (Outcome.APPROVAL_REQUIRED, Reason.BEYOND_PHYSICS)


@pytest.mark.parametrize(("gain", "expected"), [(1.99, "pass"), (2.01, "approval_required")])
def test_a_gain_above_two_waits_for_a_person(gain: float, expected: str) -> None:
    assert Physics().judge(timed(*[(1.0, gain, 0.0)] * 5)).outcome == expected


def test_noise_does_not_hide_a_large_claim() -> None:
    noisy = timed(*[(1.0, 5.0 if i % 3 else 1.5, 0.0) for i in range(9)])
    assert speeds(grade_of(noisy))[0].low < 2
    assert Physics().judge(noisy).code is Reason.LARGE_CLAIM


@pytest.mark.parametrize("value", [None, 0])
@pytest.mark.parametrize(
    "name",
    ["memory_bytes_per_s", "cache_bytes_per_s", "flops_per_s", "last_level_cache_bytes"],
)
def test_an_unknown_ceiling_is_inconclusive(name: str, value: JsonValue) -> None:
    verdict = Physics().judge(changed({f"evidence.grade.ceilings.{name}": value}))
    assert verdict.code is Reason.NOT_MEASURED
