"""Believability: what a run must show, and whose fault it is when it does not."""

import pytest

from inferproof.gates.believability import Believable
from unit.gates.serving_cases import REQUESTS, TOKENS, case, load_facts, said, with_run

HALF = REQUESTS // 2


def test_honest_runs_are_believed() -> None:
    assert said(Believable(), case()) == ("pass", "accepted")


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("requests_failed", {"completed": 12, "errors": {"status 500": 4}}),
        ("requests_failed", {"completed": 12, "errors": {"status 500": 3}}),
        ("run_incomplete", {"whole": [0] + [1] * (REQUESTS - 1)}),
        ("run_incomplete", {"is_complete": False}),
        ("run_incomplete", {"whole": []}),
        ("run_incomplete", {"exit_code": 1}),
        ("wrong_length", {"osl": [TOKENS // 2] * REQUESTS}),
        ("wrong_length", {"osl": [TOKENS // 2, TOKENS * 3 // 2] * HALF}),
        ("wrong_length", {"osl": [TOKENS + 2] * REQUESTS}),
        ("run_incomplete", {"told": []}),
        ("run_incomplete", {"arrivals": []}),
        ("wrong_length", {"told": [1] * REQUESTS, "osl": [TOKENS - 1] * REQUESTS}),
        ("wrong_length", {"told": [1] * REQUESTS, "osl": [TOKENS] * (REQUESTS - 1) + [TOKENS + 1]}),
        ("chunked_stream", {"arrivals": [2] * REQUESTS}),
        ("chunked_stream", {"arrivals": [5] * REQUESTS, "latency_ms": [900.0] * REQUESTS}),
        ("chunked_stream", {"arrivals": [1] * (REQUESTS - 1) + [TOKENS]}),
        ("chunked_stream", {"chunks": [1] + [TOKENS] * (REQUESTS - 1)}),
        ("chunked_stream", {"chunks": [0] * REQUESTS}),
        ("repetitive", {"distinct_responses": 1}),
        ("repetitive", {"compressed_share": 0.03}),
        ("repetitive", {"compressed_share": None}),
    ],
)
def test_a_run_that_only_looks_good_is_refused(code: str, changes: dict[str, object]) -> None:
    assert said(Believable(), with_run(**changes)) == ("fail", code)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("infrastructure", {"exit_code": None}),
        ("infrastructure", {"exit_code": -9}),
        ("infrastructure", {"was_cancelled": True}),
        ("infrastructure", {"completed": 0, "exit_code": 1}),
        ("infrastructure", {"completed": 9, "exit_code": 1}),
        ("client_saturated", {"client_lag_p99_ms": 400.0}),
        ("client_saturated", {"client_lag_p99_ms": None}),
    ],
)
def test_what_the_load_generator_did_is_not_blamed_on_the_engine(
    code: str, changes: dict[str, object]
) -> None:
    assert said(Believable(), with_run(**changes)) == ("inconclusive", code)


def test_a_late_client_does_not_hide_what_the_engine_sent() -> None:
    late = with_run(client_lag_p99_ms=400.0, chunks=[1] * REQUESTS)
    assert said(Believable(), late) == ("fail", "chunked_stream")


def test_small_deviations_are_allowed() -> None:
    near = with_run(osl=[TOKENS - 1] * REQUESTS, chunks=[TOKENS - 9] * REQUESTS)
    assert said(Believable(), near) == ("pass", "accepted")


def test_a_client_that_reads_late_now_and_then_is_not_the_engines_doing() -> None:
    """What honest engines looked like on a busy machine: half the responses in a few reads."""
    late = with_run(arrivals=[2] * (REQUESTS - 3) + [12] * 3, latency_ms=[900.0] * REQUESTS)
    assert said(Believable(), late) == ("pass", "accepted")


def test_tokens_that_nobody_can_see_apart_may_come_together() -> None:
    """A small model makes a whole response while a busy machine's client does something else."""
    fast = with_run(arrivals=[2] * REQUESTS, latency_ms=[50.0] * REQUESTS)
    slow = with_run(arrivals=[2] * REQUESTS, latency_ms=[300.0] * REQUESTS)
    assert said(Believable(), fast) == ("pass", "accepted")
    assert said(Believable(), slow) == ("fail", "chunked_stream")


def test_how_late_the_client_reads_shows_in_the_baseline() -> None:
    slow = [900.0] * REQUESTS
    candidate = load_facts("candidate", 0, arrivals=[4] * REQUESTS, latency_ms=slow)
    baseline = load_facts("baseline", 0, arrivals=[10] * REQUESTS)
    assert said(Believable(), case([candidate, baseline])) == ("pass", "accepted")


def test_a_baseline_that_fails_proves_nothing_about_the_candidate() -> None:
    runs = [load_facts("candidate", 0), load_facts("baseline", 0, distinct_responses=1)]
    assert said(Believable(), case(runs)) == ("inconclusive", "infrastructure")


def test_without_a_run_nothing_is_believed() -> None:
    assert said(Believable(), case([])) == ("inconclusive", "not_measured")
