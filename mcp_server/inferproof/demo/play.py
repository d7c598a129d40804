"""Plays the demo through a real MCP client over stdio, against a real server process."""

import asyncio
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from mcp import Client, StdioServerParameters
from pydantic import BaseModel, TypeAdapter

from inferproof.core.canonical import Json
from inferproof.core.errors import InfrastructureError
from inferproof.core.values import JobStatus, Outcome, Reason
from inferproof.demo.story import Act

WAIT_S = 45
PATIENCE_CALLS = 40


class _Job(BaseModel):
    """The part of a job handle that the demo reads."""

    job_id: str
    state: JobStatus


class _Gate(BaseModel):
    """The part of a gate's line that the demo reads."""

    gate: str
    outcome: Outcome
    reason: str


class _Fact(BaseModel):
    """A fact of a result, with its unit."""

    name: str
    value: object
    unit: str = ""


_GATES: TypeAdapter[list[_Gate]] = TypeAdapter(list[_Gate])
_FACTS: TypeAdapter[list[_Fact]] = TypeAdapter(list[_Fact])
_TELLING = ("speed", "objectives", "fidelity")
_RATIO = "ratio over baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of one act: the server's own words, never ours."""

    act: Act
    candidate: str
    verdict: Outcome
    code: Reason
    reason: str
    entry: str
    figures: tuple[str, ...] = ()

    def told(self) -> dict[str, Json]:
        """Return the act and its verdict as JSON."""
        return {
            "candidate": self.candidate,
            "folder": self.act.folder,
            "verdict": self.verdict.value,
            "code": self.code.value,
            "reason": self.reason,
            "entry": self.entry,
            "figures": list(self.figures),
            "as_expected": self.as_expected,
        }

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
        candidate = await self.submit(act)
        arguments = {"candidate": candidate, "purpose": "graded", "wait_s": WAIT_S}
        return self.told(act, candidate, await self._checked(act.tool, arguments))

    async def submit(self, act: Act) -> str:
        """Submit the act's folder and return the candidate's digest."""
        with tempfile.TemporaryDirectory(prefix="inferproof-candidate-") as place:
            folder = Path(place) / "candidate"
            for part in (act.base, act.folder):
                if part is not None:
                    shutil.copytree(self._candidates / part, folder, dirs_exist_ok=True)
            return str((await self._call("submit_candidate", {"folder": str(folder)}))["candidate"])

    async def searched(self) -> str:
        """Have plain search tune the baseline to its end; return what it found, in its words."""
        result = await self._call("search_config", {"wait_s": WAIT_S})
        for _ in range(PATIENCE_CALLS):
            if result["job"] is None:
                return str(result["summary"])
            result = await self._call("search_config", {"wait_s": WAIT_S})
        raise InfrastructureError(f"search_config did not end: {result['summary']}")

    async def deployed(self, act: Act, replicas: int) -> str:
        """Run the act's candidate as replicas, ask it for one completion, stop it; say how."""
        candidate = await self.submit(act)
        arguments = {"candidate": candidate, "replicas": replicas, "wait_s": WAIT_S}
        result = await self._call("deploy", arguments)
        job = _Job.model_validate(result["job"])
        try:
            endpoint = _endpoint(result)
            text = await asyncio.to_thread(_completion, endpoint)
        finally:
            await self._call("job_cancel", {"job_id": job.job_id})
        return f"{replicas} replicas behind {endpoint}; asked for 8 tokens, got {text!r}; stopped"

    def told(self, act: Act, candidate: str, result: Mapping[str, object]) -> Played:
        """Return what a tool's result says about the act."""
        if result["verdict"] is None:
            raise InfrastructureError(f"{act.folder} was not judged: {result['summary']}")
        return Played(
            act=act,
            candidate=candidate,
            verdict=Outcome(str(result["verdict"])),
            code=Reason(str(result["code"])),
            reason=_deciding_reason(result),
            entry=str(result["entry"] or result["head"]),
            figures=figures_of(result),
        )

    async def promote(self, candidate: str) -> Mapping[str, object]:
        """Ask for the candidate to become the champion, following the job it takes."""
        result = await self._call("promote", {"candidate": candidate, "wait_s": WAIT_S})
        for _ in range(PATIENCE_CALLS):
            if result["verdict"] is not None:
                return result
            result = await self._call("promote", {"candidate": candidate, "wait_s": WAIT_S})
        raise InfrastructureError(f"promote of {candidate[:12]} did not end: {result['summary']}")

    async def _checked(self, tool: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        result = await self._call(tool, arguments)
        for _ in range(PATIENCE_CALLS):
            job = _Job.model_validate(result["job"])
            if job.state.is_final:
                return result
            result = await self._call("job", {"job_id": job.job_id, "wait_s": WAIT_S})
        raise InfrastructureError(f"{tool} did not end: {result['summary']}")

    async def _call(self, tool: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        answer = await self._client.call_tool(tool, dict(arguments))
        if answer.is_error or answer.structured_content is None:
            texts = " ".join(getattr(block, "text", "") for block in answer.content)
            raise InfrastructureError(f"tool {tool} answered with an error: {texts}")
        return answer.structured_content


def _endpoint(result: Mapping[str, object]) -> str:
    found = re.search(r"http://127\.0\.0\.1:[0-9]+", json.dumps(result))
    if found is None:
        raise InfrastructureError(f"the deployment has no endpoint: {result['summary']}")
    return found[0]


def _completion(endpoint: str) -> str:
    asked = {"model": "default", "prompt": "def main(", "max_tokens": 8, "temperature": 0}
    answer = httpx.post(f"{endpoint}/v1/completions", json=asked, timeout=60)
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["text"])


def server_parameters(campaign: Path) -> StdioServerParameters:
    """Return how an agent host would start the server for this campaign."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "inferproof.cli", "serve", "--campaign", str(campaign)],
    )


def _deciding_reason(result: Mapping[str, object]) -> str:
    gates = _GATES.validate_python(result["gates"])
    said = {gate.gate: gate.reason for gate in gates if gate.outcome.value == result["verdict"]}
    for gate in _TELLING if result["verdict"] == Outcome.PASS else ():
        if gate in said:
            return said[gate]
    return next(iter(said.values()), str(result["summary"]))


def figures_of(result: Mapping[str, object]) -> tuple[str, ...]:
    """Return a load run's ratios over the baseline, one line a metric, as the server told them."""
    facts = _FACTS.validate_python(result["facts"])
    return tuple(f"{fact.name}: {fact.value}" for fact in facts if fact.unit.startswith(_RATIO))
