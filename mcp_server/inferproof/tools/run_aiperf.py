"""The tool that puts an engine and its baseline under the same load and has them judged."""

from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.values import Purpose
from inferproof.tools.results import JobResult
from inferproof.tools.spec import Call, CandidateRef, RequestKey, TargetName, Tool, Wait
from inferproof.tools.work import start_and_wait


async def run_aiperf(
    call: Call,
    candidate: CandidateRef,
    purpose: Annotated[
        Literal["practice", "screen", "graded"],
        Field(
            description="practice (default): the contract's open traffic, one start of each arm, "
            "all figures. screen: the same, recorded as a screen. graded: sealed traffic, "
            "replicas behind the balancer, several restarts, says little more than the verdict."
        ),
    ] = "practice",
    target: TargetName = "local",
    wait_s: Wait = 45.0,
    request_key: RequestKey = None,
) -> JobResult:
    """Load-test a submitted engine with AIPerf against the contract's baseline, and judge it.

    Candidate and baseline start in random order and get the same fresh prompts. TTFT, TPOT and
    latency in ms, throughput in tokens/s, each as a ratio over the baseline with its 95 %
    interval. A run counts only if it is believable and its own responses agree with the
    reference model. Takes minutes; call job to follow it.
    """
    return await start_and_wait(
        call,
        "run_aiperf",
        candidate=candidate,
        target=target,
        purpose=Purpose(purpose),
        request_key=request_key,
        wait_s=wait_s,
    )


TOOL = Tool(function=run_aiperf, title="Load-test with AIPerf", read_only=False, idempotent=False)
