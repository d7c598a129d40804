"""Objectives: every metric must be won beyond chance and beyond the baseline's own scatter."""

import math
import random

import pytest

from inferproof.core.service import Metric
from inferproof.gates import ratios
from inferproof.gates.objectives import Objectives
from inferproof.gates.ratios import guard_ratio, percentile, ratio_of
from unit.gates.serving_cases import CONTRACT, REQUESTS, Tree, case, load_facts, said

TRIES = 400


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
    assert 1.9 < guard_ratio(serve, CONTRACT.guards[0]) < 2.1


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (0.9, 3.7)])
def test_percentiles_lie_between_neighbours(share: float, value: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == pytest.approx(value)
