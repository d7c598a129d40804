"""The tool that says where a candidate's time goes."""

from inferproof.core.values import Purpose
from inferproof.tools.profile_facts import changes
from inferproof.tools.results import Fact, JobResult, fitted
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
    ceilings of this machine, and the bottleneck. rows: hot spots by share of time. Device code
    (cuda, triton; needs a GPU): one bottleneck by Nsight Compute's counters with its proof, three
    levers, and the change since the parent's last profile. Never judged and never promotes: only
    check_numerics decides.
    """
    result = await start_and_wait(
        call,
        "profile",
        candidate=candidate,
        target=target,
        purpose=Purpose.PRACTICE,
        request_key=request_key,
        wait_s=wait_s,
    )
    return fitted(await _compared(call, result))


async def _compared(call: Call, result: JobResult) -> JobResult:
    """Return the result with what changed since the last profile of the candidate's parent."""
    now = call.keeper.evidence(result.evidence).profile if result.evidence else None
    if now is None or now.parent is None:
        return result
    jobs = await call.keeper.jobs()
    refs = [job.evidence for job in jobs if job.tool == "profile" and job.candidate == now.parent]
    before = call.keeper.evidence(refs[-1]).profile if refs and refs[-1] else None
    if before is None:
        told = (Fact(name="parent", value="it was never profiled"),)
    else:
        told = tuple(changes(now, before))
    return result.model_copy(update={"facts": (*result.facts, *told)})


TOOL = Tool(function=profile, title="Profile a candidate", read_only=False, idempotent=False)
