"""What tools answer: always small, always with a summary."""

import pytest

from inferproof.core.values import JobStatus, Outcome, Reason
from inferproof.tools.results import (
    BUDGET_BYTES,
    Fact,
    JobResult,
    clip,
    fitted,
    of_job,
    size_bytes,
)
from unit.server.fake_keeper import CANDIDATE, HEAD, job_report, verdict


def test_a_small_result_is_left_as_it_is() -> None:
    result = JobResult(summary="done", ok=True, head=HEAD, rows=("one", "two"))
    assert fitted(result) == result


def test_a_large_result_says_what_it_left_out() -> None:
    rows = tuple(f"row {n} " + "x" * 100 for n in range(1000))
    facts = (Fact(name="time", value=1.5, unit="us"),)
    result = fitted(JobResult(summary="done", ok=True, head=HEAD, rows=rows, facts=facts))
    assert size_bytes(result) <= BUDGET_BYTES
    assert result.facts == facts
    assert result.rows == rows[: len(result.rows)]
    assert result.left_out == {"rows": 1000 - len(result.rows)}


def test_clip_keeps_both_ends_and_counts_the_rest() -> None:
    text = clip("a" * 300 + "b" * 300, 90)
    assert text.startswith("a" * 60)
    assert text.endswith("b" * 30)
    assert "about 510 characters left out" in text


@pytest.mark.parametrize(
    "text",
    ["a\u202eb", "a\u2066b\u200bc", "\x1b[2Jhidden", "bell\x07", "\x1b]0;title\x07", "\x9b31m"],
)
def test_clip_removes_control_codes(text: str) -> None:
    assert all(character.isprintable() for character in clip(text))


def test_clip_keeps_line_breaks_and_tabs() -> None:
    assert clip("a\n\tb") == "a\n\tb"


@pytest.mark.parametrize("status", list(JobStatus))
def test_every_state_of_a_job_has_a_summary_and_a_next_step(status: JobStatus) -> None:
    result = of_job(job_report(status=status, failure="host is gone"))
    assert "job-1" in result.summary
    assert result.next_steps
    assert result.job is not None
    assert (result.job.poll_after_s == 0) is status.is_final


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_pass_is_ok(outcome: Outcome) -> None:
    result = of_job(job_report(verdicts=(verdict(outcome, Reason.NOT_MEASURED),)))
    assert result.ok is (outcome is Outcome.PASS)
    assert result.verdict is outcome
    assert outcome.value.upper() in result.summary


def test_the_deciding_gate_is_named() -> None:
    passed = verdict(Outcome.PASS, Reason.ACCEPTED)
    failed = verdict(Outcome.FAIL, Reason.STALE_OUTPUT, "equals call 3")
    report = job_report(verdicts=(passed, failed)).model_copy(update={"overall": Outcome.FAIL})
    result = of_job(report)
    assert result.code == "stale_output"
    assert "equals call 3" in result.summary
    assert [gate.outcome for gate in result.gates] == [Outcome.PASS, Outcome.FAIL]


def test_a_pass_without_advice_leads_to_the_next_tool() -> None:
    silent = verdict(Outcome.PASS, Reason.ACCEPTED).model_copy(update={"next_step": ""})
    report = job_report(verdicts=(silent,))
    assert report.candidate == CANDIDATE
    assert "promote" in of_job(report).next_steps[0]
    compiled = report.model_copy(update={"tool": "compile_kernel"})
    assert "check_numerics" in of_job(compiled).next_steps[0]
