"""The tool that keeps an engine running as replicas behind one endpoint."""

from typing import Annotated

from pydantic import Field

from inferproof.tools.results import JobResult
from inferproof.tools.spec import Call, CandidateRef, RequestKey, TargetName, Tool, Wait
from inferproof.tools.work import deploy_and_wait


async def deploy(
    call: Call,
    candidate: CandidateRef,
    replicas: Annotated[
        int,
        Field(ge=1, le=64, description="How many replicas shall run: 1 to 64, default 1."),
    ] = 1,
    target: TargetName = "local",
    wait_s: Wait = 45.0,
    request_key: RequestKey = None,
) -> JobResult:
    """Run a submitted engine as replicas behind one HTTP endpoint, each in a sandbox of its own.

    Returns the endpoint (http://127.0.0.1:PORT) once every replica is healthy; it serves until
    job_cancel or the end of the job's wall clock. Called again with another number of replicas,
    it scales the running deployment and drops no request. Practice: nothing is judged.
    """
    return await deploy_and_wait(
        call,
        candidate=candidate,
        replicas=replicas,
        target=target,
        request_key=request_key,
        wait_s=wait_s,
    )


TOOL = Tool(function=deploy, title="Deploy an engine", read_only=False, idempotent=False)
