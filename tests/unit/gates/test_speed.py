"""Ratios, their intervals, and what may not be claimed from them."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from inferproof.core.evidence import GradeFacts, TimedPair
from inferproof.core.serving_facts import EarlierTries
from inferproof.core.values import Outcome, Purpose, Reason, Verdict
from inferproof.gates.base import Case
from inferproof.gates.intervals import speeds
from inferproof.gates.physics import Physics, least_seconds
from inferproof.gates.speed import Speedup
from inferproof.gates.student import rounds_for
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
    grade = grade.model_copy(update={"timed": shapes})
    evidence = honest().evidence.model_copy(update={"grade": grade})
    return honest().model_copy(
        update={
            "contract": honest().contract.model_copy(update={"baselines": ("torch",)}),
            "evidence": evidence,
            "speedup_at_least": objective,
        }
    )


def after(earlier: int, case: Case, purpose: Purpose = Purpose.GRADED) -> Case:
    """Return a case as it is judged after so many earlier tries."""
    tries = EarlierTries(graded=earlier, final=0)
    evidence = case.evidence.model_copy(update={"earlier": tries, "purpose": purpose})
    return case.model_copy(update={"evidence": evidence})


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


WHY = "torch.compile needs a C++ compiler: apt-get install g++"


def test_a_bar_that_lacks_a_baseline_of_the_contract_is_not_known() -> None:
    """Who is faster than torch may be slower than what torch.compile would have been."""
    whole = timed(*[(1.0, 1.5, 0.0)] * 5)
    both = honest().contract.baselines
    short = whole.model_copy(
        update={"contract": whole.contract.model_copy(update={"baselines": both})}
    )
    assert Speedup().judge(whole).outcome is Outcome.PASS
    assert Speedup().judge(short).code is Reason.NOT_MEASURED
    grade = grade_of(short).model_copy(update={"absent_baselines": {"torch.compile": WHY}})
    told = short.evidence.model_copy(update={"grade": grade})
    verdict = Speedup().judge(short.model_copy(update={"evidence": told}))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.INFRASTRUCTURE)
    assert WHY in verdict.reason
    assert "doctor" in verdict.next_step


# As fast as the baseline, and lucky: 15 of 20 rounds went its way, which one try in fifty gives.
LUCKY = [(1.0, 1.0 + (0.05 if at % 4 else -0.05), 0.0) for at in range(20)]
# Truly a fifth faster, on a machine that spoils two rounds in twenty.
FASTER = [(1.0, 0.5 if at % 10 == 9 else 1.2 + 0.01 * (at % 3), 0.0) for at in range(20)]


def test_luck_that_one_try_is_allowed_does_not_pass_the_fortieth() -> None:
    lucky = timed(*LUCKY, objective=1.0)
    assert Speedup().judge(after(0, lucky)).outcome is Outcome.PASS
    verdict = Speedup().judge(after(39, lucky))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.BELOW_RESOLUTION)
    assert "try 40 under this seal, hence a 99.99" in verdict.reason


@pytest.mark.parametrize("earlier", [0, 1, 5])
def test_a_kernel_that_is_faster_passes_at_a_later_try_too_and_is_told_its_level(
    earlier: int,
) -> None:
    verdict = Speedup().judge(after(earlier, timed(*FASTER)))
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert ("under this seal" in verdict.reason) is (earlier > 0)


def test_at_the_fortieth_try_a_faster_kernel_passes_with_the_rounds_that_are_timed_then() -> None:
    rounds = [FASTER[at % 20] for at in range(rounds_for(39, 20))]
    verdict = Speedup().judge(after(39, timed(*rounds)))
    assert verdict.outcome is Outcome.PASS, verdict.reason
    assert "99.9939 % interval 1.2 to" in verdict.reason


def test_the_interval_of_a_later_try_is_never_narrower_than_that_of_an_earlier() -> None:
    found = [speeds(grade_of(timed(*FASTER)), each)[0] for each in (0, 1, 4, 40, 400)]
    lows, highs = [each.low for each in found], [each.high for each in found]
    assert lows == sorted(lows, reverse=True)
    assert highs == sorted(highs)
    assert (lows[-1], highs[-1]) == (0.0, math.inf)


def test_rounds_that_cannot_tell_at_the_level_of_a_try_are_said_to_be_too_few() -> None:
    verdict = Speedup().judge(after(400, timed(*FASTER)))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.NOT_MEASURED)
    assert "enough rounds" in verdict.reason
    assert "try 401 under this seal" in verdict.reason


def test_practice_is_no_try() -> None:
    lucky = timed(*LUCKY, objective=1.0)
    assert Speedup().judge(after(39, lucky, Purpose.PRACTICE)).outcome is Outcome.PASS


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
