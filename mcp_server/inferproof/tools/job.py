"""The tool that follows a job or lists jobs."""

from typing import Annotated

from pydantic import Field

from inferproof.tools.results import JobResult, fitted, handle_of
from inferproof.tools.spec import Call, Tool, Wait
from inferproof.tools.work import told_now

LISTED = 20
JobId = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_.-]{0,80}$",
        description="Id of a job, as a tool returned it. Empty (default): list the latest jobs.",
    ),
]


async def job(call: Call, job_id: JobId = "", wait_s: Wait = 45.0) -> JobResult:
    """Follow a job: wait up to wait_s seconds for its end and return its verdict or its handle.

    Jobs outlive the server, the host and this conversation. With no job_id: list the latest 20
    jobs, newest first, without waiting. Calling it often is no faster: wait_s up to 50 waits.
    """
    if job_id:
        report = await call.keeper.follow(job_id, wait_s=wait_s, on_progress=call.on_progress)
        return await told_now(call, report)
    reports = tuple(reversed(await call.keeper.jobs()))
    running = [report for report in reports if not report.status.is_final]
    return fitted(
        JobResult(
            summary=f"{len(reports)} jobs, {len(running)} not ended",
            ok=True,
            next_steps=tuple(f"call job with job_id {r.job_id}" for r in running[:3]),
            head=call.keeper.head(),
            jobs=tuple(handle_of(report) for report in reports[:LISTED]),
            left_out={"jobs": len(reports) - LISTED} if len(reports) > LISTED else {},
        )
    )


TOOL = Tool(function=job, title="Follow or list jobs", read_only=True, idempotent=True)
