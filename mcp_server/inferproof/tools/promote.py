"""The tool that asks for a candidate to become the champion."""

from inferproof.core.reports import PromotionReport
from inferproof.core.values import Outcome
from inferproof.tools.results import JobResult, clip, fitted
from inferproof.tools.spec import Call, CandidateRef, TargetName, Tool, Wait
from inferproof.tools.work import told


async def promote(
    call: Call,
    candidate: CandidateRef,
    target: TargetName = "local",
    wait_s: Wait = 45.0,
) -> JobResult:
    """Run every gate again on a candidate, graded, and make it the champion if all pass.

    Call it when check_numerics passes and you cannot make it faster. approval_required names the
    one command that a person runs; call promote again after they did. If it does not end within
    wait_s, job holds a handle: follow it with job, then call promote again.
    """
    report = await call.keeper.promote(
        candidate, target=target, wait_s=wait_s, on_progress=call.on_progress
    )
    return _result(call, report)


def _result(call: Call, report: PromotionReport) -> JobResult:
    running = report.job is not None and not report.job.status.is_final
    if report.job is None:
        base = JobResult(summary="", ok=False, head=report.head)
    else:
        base = told(call, report.job)
    step = (clip(report.next_step, 400),) if report.next_step else ()
    return fitted(
        base.model_copy(
            update={
                "summary": f"promote {candidate_name(report)}: {_word(report, running=running)} "
                f"({report.code.value}): {clip(report.reason)}",
                "ok": not running and report.outcome is Outcome.PASS,
                "verdict": None if running else report.outcome,
                "code": report.code.value,
                "next_steps": tuple(dict.fromkeys((*step, *(base.next_steps if running else ())))),
                "head": report.head,
                "approval_id": report.approval_id,
            }
        )
    )


def candidate_name(report: PromotionReport) -> str:
    """Return the short name of the candidate, as far as the report knows it."""
    candidate = report.job.candidate if report.job is not None else None
    return candidate[:12] if candidate else "candidate"


def _word(report: PromotionReport, *, running: bool) -> str:
    return "still being graded" if running else report.outcome.value.upper()


TOOL = Tool(function=promote, title="Promote a candidate", read_only=False, idempotent=True)
