"""The tool that says where a candidate's time goes."""

from inferproof.core.values import Purpose
from inferproof.tools.results import JobResult
from inferproof.tools.spec import Call, CandidateRef, RequestKey, TargetName, Tool, Wait
from inferproof.tools.work import start_and_wait


async def profile(
    call: Call,
    candidate: CandidateRef,
    target: TargetName = "local",
    wait_s: Wait = 45.0,
    request_key: RequestKey = None,
) -> JobResult:
    """Show where a candidate's time goes, beside what the machine can do. Practice only.

    facts: time per call in us, bandwidth in GB/s and operations in GFLOP/s with the measured
    ceilings of this machine, and the bottleneck. rows: hot spots by share of time. Never judged
    and never promotes: only check_numerics decides.
    """
    return await start_and_wait(
        call,
        "profile",
        candidate=candidate,
        target=target,
        purpose=Purpose.PRACTICE,
        request_key=request_key,
        wait_s=wait_s,
    )


TOOL = Tool(function=profile, title="Profile a candidate", read_only=False, idempotent=False)
