"""Objectives: every metric must be won beyond chance and beyond the baseline's own scatter."""

import math
import random
import re

import pytest

from inferproof.core.service import Guard, Metric
from inferproof.core.serving_facts import EarlierTries, LoadFacts
from inferproof.core.values import Outcome, Reason
from inferproof.gates import guards, ratios
from inferproof.gates.base import ServiceCase
from inferproof.gates.guards import worsening
from inferproof.gates.objectives import Objectives
from inferproof.gates.ratios import percentile, ratio_of
from unit.gates.serving_cases import (
    CONTRACT,
    DIGEST,
    REQUESTS,
    Tree,
    case,
    load_facts,
    said,
    start_facts,
)

TRIES = 400


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ratios, guards):
        monkeypatch.setattr(module, "RESAMPLES", 300)


def rounds(speed: float, *, baseline: tuple[float, float] = (1.0, 1.0)) -> list[Tree]:
    ours = [load_facts("candidate", n, speed=speed) for n in range(2)]
    return [*ours, *(load_facts("baseline", n, speed=baseline[n]) for n in range(2))]


def test_a_gain_on_every_metric_passes() -> None:
    assert said(Objectives(), case(purpose="graded")) == ("pass", "accepted")


@pytest.mark.parametrize(
    ("speed", "told"),
    [(1.0, ("fail", "not_faster")), (0.5, ("fail", "not_faster")), (2.0, ("pass", "accepted"))],
)
def test_what_is_asked_must_be_reached(speed: float, told: tuple[str, str]) -> None:
    assert said(Objectives(), case(rounds(speed), purpose="graded")) == told


def test_one_metric_won_does_not_make_up_for_one_that_is_lost() -> None:
    runs = rounds(2.0)
    for run in runs[:2]:
        run["output_tokens_per_s"] = 60.0
    assert said(Objectives(), case(runs, purpose="graded")) == ("fail", "mixed_result")


def test_a_tail_that_got_worse_is_refused() -> None:
    runs = rounds(2.0)
    for run in runs[:2]:
        run["ttft_ms"] = [50.0] * (REQUESTS - 4) + [900.0] * 4
    assert said(Objectives(), case(runs, purpose="graded")) == ("fail", "guard_worse")


def test_a_gain_below_the_baselines_own_scatter_proves_nothing() -> None:
    runs = rounds(2.2, baseline=(1.0, 2.5))
    assert said(Objectives(), case(runs, purpose="graded")) == ("inconclusive", "below_resolution")


@pytest.mark.parametrize("left", [1, 2, 3])
def test_a_round_that_is_missing_is_not_measured(left: int) -> None:
    told = said(Objectives(), case(rounds(2.0)[:left], purpose="graded"))
    assert told == ("inconclusive", "not_measured")


def test_a_deciding_run_has_the_sealed_number_of_replicas() -> None:
    starts = [start_facts(arm, 0, replicas=2, healthy=2) for arm in ("candidate", "baseline")]
    told = said(Objectives(), case(starts=starts, purpose="graded"))
    assert told == ("inconclusive", "not_measured")
    assert said(Objectives(), case(starts=starts)) == ("pass", "accepted")


def test_a_metric_that_is_missing_is_not_measured() -> None:
    runs = rounds(2.0)
    runs[0]["ttft_ms"] = []
    assert said(Objectives(), case(runs, purpose="graded")) == ("inconclusive", "not_measured")


def test_grading_tells_no_figures_and_practice_does() -> None:
    graded = Objectives().judge(case(rounds(1.0), purpose="graded")).reason
    practice = Objectives().judge(case(rounds(1.0))).reason
    assert "interval" not in graded
    assert "interval" in practice


def test_ratios_say_how_many_times_better_and_are_repeatable() -> None:
    serve = case().evidence.serve
    assert serve
    ratio = ratio_of(serve, "c4", "ttft_ms")
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.low > 1.9
    assert ratio.high < 2.1
    assert 1.0 <= ratio.floor < 1.05
    assert ratio_of(serve, "c4", "ttft_ms") == ratio
    assert 1.9 < ratio_of(serve, "c4", "output_tokens_per_s").value < 2.1


@pytest.mark.parametrize("restarts", [2, 3, 4])
@pytest.mark.parametrize("metric", ["ttft_ms", "output_tokens_per_s"])
def test_a_metric_is_won_by_chance_no_more_often_than_the_interval_leaves_out(
    monkeypatch: pytest.MonkeyPatch, metric: Metric, restarts: int
) -> None:
    monkeypatch.setattr(ratios, "RESAMPLES", 100)
    draw = random.Random(restarts)
    won = 0
    for _ in range(TRIES):
        serve = case(alike(draw, restarts)).evidence.serve
        assert serve
        won += ratio_of(serve, "c4", metric).low > 1
    assert won <= 0.025 * TRIES + 2 * math.sqrt(0.025 * TRIES)


def alike(draw: random.Random, restarts: int) -> list[Tree]:
    """Return runs of arms that do not differ, though starts and requests do."""
    found: list[Tree] = []
    for arm in ("candidate", "baseline"):
        for restart in range(restarts):
            start = math.exp(draw.gauss(0, 0.1))
            ttft: list[object] = [100 * start * math.exp(draw.gauss(0, 0.2)) for _ in range(8)]
            rate = 128.0 * start * math.exp(draw.gauss(0, 0.1))
            run = load_facts(arm, restart, ttft_ms=ttft, output_tokens_per_s=rate)
            found.append(run)
    return found


def test_a_guard_says_by_which_factor_a_percentile_got_worse() -> None:
    serve = case(rounds(0.5)).evidence.serve
    assert serve
    found = worsening(serve, CONTRACT.guards[0], CONTRACT)
    assert found
    assert 1.9 < found.low <= found.value < 2.1


def guarded(metric: str, *, ours: float | None, theirs: float | None) -> tuple[str, str]:
    """Return the verdict on an engine that is fast, where one guard has these values."""
    guard = {"metric": metric, "worse_at_most": 1.2}
    guard |= {} if metric == "peak_memory_mib" else {"traffic": "c4"}
    starts = [
        start_facts(arm, n, peak_memory_mib=ours if arm == "candidate" else theirs)
        for n in range(2)
        for arm in ("candidate", "baseline")
    ]
    whole = case(starts=starts, purpose="graded")
    contract = whole.contract.model_copy(update={"guards": (Guard.model_validate(guard),)})
    return said(Objectives(), whole.model_copy(update={"contract": contract}))


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (90.0, 100.0, ("pass", "accepted")),
        (119.0, 100.0, ("pass", "accepted")),
        (130.0, 100.0, ("fail", "guard_worse")),
        (None, 100.0, ("inconclusive", "not_measured")),
        (100.0, None, ("inconclusive", "not_measured")),
    ],
)
def test_an_engine_that_takes_more_memory_than_is_allowed_is_refused(
    ours: float | None, theirs: float | None, told: tuple[str, str]
) -> None:
    assert guarded("peak_memory_mib", ours=ours, theirs=theirs) == told


def test_an_engine_that_fails_no_more_requests_than_the_baseline_passes_that_guard() -> None:
    assert guarded("error_share", ours=1.0, theirs=1.0) == ("pass", "accepted")


def test_one_restart_has_the_interval_of_its_requests_alone() -> None:
    """A practice run is one restart: it explains, and may already say what is lost or won."""
    won, lost = rounds(2.0), rounds(0.5)
    assert said(Objectives(), case([won[0], won[2]])) == ("pass", "accepted")
    assert said(Objectives(), case([lost[0], lost[2]])) == ("fail", "not_faster")


def tried(graded: int, *, final: int = 0, spread: float = 0.02) -> ServiceCase:
    """Return a case of three restarts, twice as fast, after so many earlier tries."""
    factors = (1 - spread, 1.0, 1 + spread)
    runs = [
        load_facts(arm, n, speed=2.0 * factors[n] if arm == "candidate" else 1.0)
        for n in range(3)
        for arm in ("candidate", "baseline")
    ]
    whole = case(runs, purpose="graded")
    earlier = EarlierTries(graded=graded, final=final)
    evidence = whole.evidence.model_copy(update={"earlier": earlier})
    return whole.model_copy(update={"evidence": evidence})


def test_the_first_try_has_the_interval_of_one_and_each_later_one_a_wider() -> None:
    assert said(Objectives(), tried(0, spread=0.15)) == ("pass", "accepted")
    assert said(Objectives(), tried(3, spread=0.15)) == ("inconclusive", "below_resolution")
    assert said(Objectives(), tried(3, spread=0.02)) == ("pass", "accepted")
    assert "speed verdict 4 under this seal" in Objectives().judge(tried(3, spread=0.02)).reason


def test_what_is_not_settled_says_how_many_restarts_would_settle_it() -> None:
    verdict = Objectives().judge(tried(3, spread=0.15))
    restarts = re.search(r"about ([0-9]+) restarts of each arm would settle it", verdict.reason)
    assert restarts
    assert 4 <= int(restarts[1]) <= 12
    assert restarts[1] in verdict.next_step


def final(whole: ServiceCase) -> ServiceCase:
    """Return the case with its graded traffic as the final one."""
    contract = whole.contract.model_copy(update={"final": whole.contract.graded})
    return whole.model_copy(update={"contract": contract})


def test_another_look_at_the_final_traffic_waits_for_a_person() -> None:
    verdict = Objectives().judge(final(tried(1, final=1)))
    assert (verdict.outcome, verdict.code) == (Outcome.APPROVAL_REQUIRED, Reason.FINAL_USED)
    assert "has judged 1 promotions of this contract before" in verdict.reason
    assert said(Objectives(), final(tried(1))) == ("pass", "accepted")
    assert said(Objectives(), tried(1, final=1)) == ("pass", "accepted")


def test_nobody_is_asked_about_a_look_at_the_final_traffic_that_was_not_won() -> None:
    assert said(Objectives(), final(tried(3, final=1, spread=0.15))) == (
        "inconclusive",
        "below_resolution",
    )


def test_a_kernel_that_won_alone_is_refused_with_the_engine_that_loses() -> None:
    whole = case(rounds(1.0), purpose="graded")
    assert whole.evidence.serve
    serve = whole.evidence.serve.model_copy(update={"kernels": {"rms_norm": DIGEST}})
    evidence = whole.evidence.model_copy(update={"serve": serve})
    verdict = Objectives().judge(whole.model_copy(update={"evidence": evidence}))
    assert verdict.outcome is Outcome.FAIL
    assert f"what kernel rms_norm {DIGEST[:12]} won alone is lost end to end" in verdict.reason


def ramp(speeds: dict[int, float]) -> ServiceCase:
    """Return a case on a ramp, the candidate so many times faster at each concurrency."""
    whole = case(purpose="graded")
    shape = whole.contract.graded[0].model_copy(update={"concurrency": None, "ramp": tuple(speeds)})
    contract = whole.contract.model_copy(update={"graded": (shape,), "guards": ()})
    assert whole.evidence.serve
    runs = [
        LoadFacts.model_validate(
            load_facts(arm, n, speed=speed if arm == "candidate" else 1.0, traffic=f"c4.c{step}")
            | {"output_tokens_per_s": 100.0 * min(step, 4) * (speed if arm == "candidate" else 1)}
        )
        for step, speed in speeds.items()
        for n in range(2)
        for arm in ("candidate", "baseline")
    ]
    serve = whole.evidence.serve.model_copy(update={"loads": tuple(runs)})
    evidence = whole.evidence.model_copy(update={"serve": serve})
    return whole.model_copy(update={"contract": contract, "evidence": evidence})


def test_a_ramp_is_won_at_every_concurrency_and_its_knees_are_told() -> None:
    verdict = Objectives().judge(ramp({1: 2.0, 4: 2.0, 8: 2.0}))
    assert verdict.outcome is Outcome.PASS, verdict
    assert "candidate at 4 in flight (1:200 4:800 8:800 tokens/s)" in verdict.reason
    assert said(Objectives(), ramp({1: 2.0, 4: 2.0, 8: 1.0})) == ("fail", "mixed_result")


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (0.9, 3.7)])
def test_percentiles_lie_between_neighbours(share: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == pytest.approx(value)
