"""Plays the demo through a real MCP client over stdio, against a real server process."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mcp import Client, StdioServerParameters

from inferproof.core.errors import InfrastructureError
from inferproof.core.values import Outcome, Reason
from inferproof.demo.story import Act

WAIT_S = 45
PATIENCE_CALLS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of one act: the server's own words, never ours."""

    act: Act
    candidate: str
    verdict: Outcome
    code: Reason
    reason: str
    entry: str

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is one that the act must end in."""
        return self.verdict in self.act.outcomes and self.code in self.act.codes


class Player:
    """An agent's seat: it can call tools and nothing else."""

    def __init__(self, client: Client, candidates: Path) -> None:
        self._client = client
        self._candidates = candidates

    async def play(self, act: Act) -> Played:
        """Submit the act's candidate, have it checked as graded, and return the verdict."""
        submitted = await self._call(
            "submit_candidate", {"folder": str(self._candidates / act.folder)}
        )
        candidate = str(submitted["candidate"])
        result = await self._checked(
            "check_numerics", {"candidate": candidate, "purpose": "graded", "wait_s": WAIT_S}
        )
        return Played(
            act=act,
            candidate=candidate,
            verdict=Outcome(str(result["verdict"])),
            code=Reason(str(result["code"])),
            reason=_deciding_reason(result),
            entry=str(result["entry"]),
        )

    async def promote(self, candidate: str) -> Mapping[str, object]:
        """Ask for the candidate to become the champion, following the job it takes."""
        result = await self._call("promote", {"candidate": candidate, "wait_s": WAIT_S})
        for _ in range(PATIENCE_CALLS):
            if result["verdict"] is not None:
                return result
            result = await self._call("promote", {"candidate": candidate, "wait_s": WAIT_S})
        raise InfrastructureError(f"promote of {candidate[:12]} did not end: {result['summary']}")

    async def _checked(self, tool: str, arguments: dict[str, object]) -> Mapping[str, object]:
        result = await self._call(tool, arguments)
        for _ in range(PATIENCE_CALLS):
            job = result["job"]
            if result["verdict"] is not None or not isinstance(job, dict):
                return result
            result = await self._call("job", {"job_id": job["job_id"], "wait_s": WAIT_S})
        raise InfrastructureError(f"{tool} did not end: {result['summary']}")

    async def _call(self, tool: str, arguments: dict[str, object]) -> Mapping[str, object]:
        answer = await self._client.call_tool(tool, arguments)
        if answer.is_error or answer.structured_content is None:
            texts = " ".join(getattr(block, "text", "") for block in answer.content)
            raise InfrastructureError(f"tool {tool} answered with an error: {texts}")
        return answer.structured_content


def server_parameters(campaign: Path) -> StdioServerParameters:
    """Return how an agent host would start the server for this campaign."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "inferproof.cli", "serve", "--campaign", str(campaign)],
    )


def _deciding_reason(result: Mapping[str, object]) -> str:
    gates = result["gates"]
    if not isinstance(gates, list):
        return str(result["summary"])
    said = [gate for gate in gates if gate["outcome"] == result["verdict"]]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(said[0]["reason"]) if said else str(result["summary"])  # pyright: ignore[reportUnknownArgumentType]
