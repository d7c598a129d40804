"""Start a job, wait for it as long as the caller asked, and say what came of it."""

import asyncio

import anyio

from inferproof.core.reports import JobReport
from inferproof.core.values import Purpose
from inferproof.tools.facts import deploy_facts, facts_of, rows_of
from inferproof.tools.results import JobResult, of_job
from inferproof.tools.spec import Call, StartedTool


async def start_and_wait(
    call: Call,
    tool: StartedTool,
    *,
    candidate: str | None,
    target: str,
    purpose: Purpose,
    request_key: str | None,
    wait_s: float,
    argv: tuple[str, ...] = (),
) -> JobResult:
    """Return the verdict if the job ends within `wait_s` seconds, else its handle.

    When the request is cancelled, the job it started is cancelled too. A job found by its
    request key, or one whose server is going away, lives on.
    """
    started = await call.keeper.start(
        tool,
        candidate=candidate,
        target=target,
        purpose=purpose,
        request_key=request_key,
        argv=argv,
    )
    try:
        report = await call.keeper.follow(
            started.job_id, wait_s=wait_s, on_progress=call.on_progress
        )
    except asyncio.CancelledError:
        if started.is_new and not call.server_is_ending():
            with anyio.CancelScope(shield=True):
                await call.keeper.cancel(started.job_id)
        raise
    return told(call, report)


async def deploy_and_wait(
    call: Call,
    *,
    candidate: str,
    replicas: int,
    target: str,
    request_key: str | None,
    wait_s: float,
) -> JobResult:
    """Scale the candidate's running deployment, or start one; return how it stands."""
    keeper = call.keeper
    job_id = await keeper.rollout.scale(candidate, target=target, replicas=replicas)
    if job_id is None:
        started = await keeper.start(
            "deploy",
            candidate=candidate,
            target=target,
            purpose=Purpose.PRACTICE,
            request_key=request_key,
            replicas=replicas,
        )
        job_id = started.job_id
    report = await keeper.follow(
        job_id, wait_s=wait_s, on_progress=call.on_progress, replicas=replicas
    )
    return await told_now(call, report)


def told(call: Call, report: JobReport) -> JobResult:
    """Return a report with the facts of its evidence, if it has any yet."""
    if report.evidence is None:
        return of_job(report)
    evidence = call.keeper.evidence(report.evidence)
    return of_job(report, facts=facts_of(evidence), rows=rows_of(evidence))


async def told_now(call: Call, report: JobReport) -> JobResult:
    """Return the same; a deployment that runs tells its endpoint, and is ok when all is healthy."""
    running = None
    if report.tool == "deploy" and report.evidence is None:
        running = await call.keeper.rollout.facts(report.job_id)
    if running is None:
        return told(call, report)
    healthy = all(one.healthy == one.replicas for one in running.deployments)
    result = of_job(report, facts=deploy_facts(running))
    return result.model_copy(update={"ok": bool(running.endpoint) and healthy})
