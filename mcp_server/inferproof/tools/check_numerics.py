"""The tool that checks and times a candidate and has it judged."""

from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.values import Purpose
from inferproof.tools.results import JobResult
from inferproof.tools.spec import Call, CandidateRef, RequestKey, TargetName, Tool, Wait
from inferproof.tools.work import start_and_wait


async def check_numerics(
    call: Call,
    candidate: CandidateRef,
    purpose: Annotated[
        Literal["practice", "graded"],
        Field(
            description="practice (default): open shapes, errors in detail, never promotes. "
            "graded: shapes and inputs drawn after the commit, says little more than the verdict."
        ),
    ] = "practice",
    target: TargetName = "local",
    wait_s: Wait = 45.0,
    request_key: RequestKey = None,
) -> JobResult:
    """Compile, run, check and time a candidate against its sealed contract, and judge it.

    Every timed call is one whose output may be checked; times are medians in us of the candidate
    and of the contract's baselines, interleaved in the same run. verdict: pass, fail,
    inconclusive or approval_required, with a code and a reason per gate. Takes from half a minute
    to minutes; if it does not end within wait_s, job holds a handle: call job to follow it.
    """
    return await start_and_wait(
        call,
        "check_numerics",
        candidate=candidate,
        target=target,
        purpose=Purpose(purpose),
        request_key=request_key,
        wait_s=wait_s,
    )


TOOL = Tool(function=check_numerics, title="Check numerics", read_only=False, idempotent=False)
