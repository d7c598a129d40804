"""The tool that stops a job."""

from typing import Annotated

from pydantic import Field

from inferproof.tools.results import JobResult, of_job
from inferproof.tools.spec import Call, Tool


async def job_cancel(
    call: Call,
    job_id: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_.-]{1,80}$",
            description="Id of a running job, as a tool returned it.",
        ),
    ],
) -> JobResult:
    """Stop a job and every process it started; the cancellation is recorded in the ledger.

    A job that has ended stays as it is, and its result is returned.
    """
    return of_job(await call.keeper.cancel(job_id))


TOOL = Tool(function=job_cancel, title="Cancel a job", read_only=False, idempotent=True)
