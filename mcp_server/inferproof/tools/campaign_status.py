"""The tool that says where the campaign stands."""

from inferproof.tools.results import ToolResult, clip, fitted
from inferproof.tools.spec import Call, Tool


async def campaign_status(call: Call) -> ToolResult:
    """Say where the campaign stands and what is left to do. Call it first and after each verdict.

    Returns the goal's components, the champion, running jobs, pending approvals, notes from the
    person, and the next steps, most useful first. Reads only; takes no arguments.
    """
    status = await call.keeper.status()
    return fitted(
        ToolResult(
            summary=clip(status.summary, 3000),
            ok=True,
            next_steps=tuple(clip(step, 300) for step in status.next_steps),
            head=call.keeper.head(),
        )
    )


TOOL = Tool(function=campaign_status, title="Campaign status", read_only=True, idempotent=True)
