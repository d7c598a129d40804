"""The tool that compiles a candidate in the sandbox."""

from inferproof.core.values import Purpose
from inferproof.tools.results import JobResult
from inferproof.tools.spec import Call, CandidateRef, RequestKey, TargetName, Tool, Wait
from inferproof.tools.work import start_and_wait


async def compile_kernel(
    call: Call,
    candidate: CandidateRef,
    target: TargetName = "local",
    wait_s: Wait = 45.0,
    request_key: RequestKey = None,
) -> JobResult:
    """Compile a submitted candidate in the sandbox and return what the compiler said.

    rows: file:line: severity: message, errors first. facts: compile time in s; for CUDA also
    registers per thread, shared memory and spills in bytes per kernel and architecture. Optional:
    check_numerics compiles too. cpp by g++, cuda by nvcc (no GPU needed), python by an import.
    """
    return await start_and_wait(
        call,
        "compile_kernel",
        candidate=candidate,
        target=target,
        purpose=Purpose.PRACTICE,
        request_key=request_key,
        wait_s=wait_s,
    )


TOOL = Tool(function=compile_kernel, title="Compile a kernel", read_only=False, idempotent=True)
