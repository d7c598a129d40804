"""The server's resources and prompts: the campaign to read, and the words to start it with."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS

from inferproof.core.errors import InferproofError, NotFound
from inferproof.tools.spec import Keeper

LEDGER_LINES = 50
LEDGER_TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Shelf:
    """What can be read about one campaign; each docstring is the resource's description."""

    campaign_dir: Path
    open_keeper: Callable[[], Keeper]

    def campaign(self) -> str:
        """campaign.yaml: model, target, components, approvals, budget, limits."""
        return _text(self.campaign_dir / "campaign.yaml")

    def contracts(self) -> str:
        """Names of the campaign's contracts; read inferproof://contracts/NAME for one."""
        return json.dumps(self._contract_names())

    def contract(self, name: str) -> str:
        """contract.yaml of one kernel: what must hold."""
        names = self._contract_names()
        if name not in names:
            raise ResourceNotFoundError(f"no contract {name!r}; there are: {', '.join(names)}")
        return _text(self._kernels() / name / "contract.yaml")

    def evidence(self, digest: str) -> str:
        """One piece of stored evidence, whole, by its digest or job id."""
        try:
            return self.open_keeper().evidence(digest).model_dump_json(indent=1)
        except InferproofError as exc:
            raise _resource_error(exc) from exc

    def ledger(self) -> str:
        """The newest 50 entries of the ledger, oldest first, one JSON object a line."""
        return _tail(self.campaign_dir / ".inferproof" / "ledger.jsonl")

    async def goal(self) -> str:
        """The goal as a condition that can be decided from the transcript."""
        try:
            return await _goal(self.open_keeper)
        except InferproofError as exc:
            raise _resource_error(exc) from exc

    def _kernels(self) -> Path:
        return self.campaign_dir / "contracts" / "kernels"

    def _contract_names(self) -> list[str]:
        return sorted(path.parent.name for path in self._kernels().glob("*/contract.yaml"))


def add_resources(server: MCPServer[Any], shelf: Shelf) -> None:
    """Offer the campaign, its contracts, evidence, the ledger's end and the goal to read."""
    for uri, read, mime_type in (
        ("inferproof://campaign", shelf.campaign, "application/yaml"),
        ("inferproof://contracts", shelf.contracts, "application/json"),
        ("inferproof://contracts/{name}", shelf.contract, "application/yaml"),
        ("inferproof://evidence/{digest}", shelf.evidence, "application/json"),
        ("inferproof://ledger", shelf.ledger, "application/jsonl"),
        ("inferproof://goal", shelf.goal, "text/markdown"),
    ):
        server.resource(uri, name=read.__name__, mime_type=mime_type)(read)


def add_prompts(server: MCPServer[Any], open_keeper: Callable[[], Keeper]) -> None:
    """Offer the goal text and the skills as prompts, rendered when they are asked for."""

    @server.prompt(name="goal", title="Goal", description="The goal text: paste it after /goal.")
    async def goal() -> str:
        return await _prompt(_goal(open_keeper))

    @server.prompt(
        name="start-campaign",
        title="Start a campaign",
        description="How to begin or resume work on a sealed campaign.",
    )
    async def start_campaign() -> str:
        return await _prompt(_skill(open_keeper, "start-campaign"))

    @server.prompt(
        name="implement-component",
        title="Implement a component",
        description="How to write a candidate for a contract and get it accepted.",
    )
    async def implement_component() -> str:
        return await _prompt(_skill(open_keeper, "implement-component"))

    @server.prompt(
        name="implement-engine",
        title="Implement an engine",
        description="How to hand in an engine for a service contract and get it accepted.",
    )
    async def implement_engine() -> str:
        return await _prompt(_skill(open_keeper, "implement-engine"))

    _ = goal, start_campaign, implement_component, implement_engine


async def _goal(open_keeper: Callable[[], Keeper]) -> str:
    from inferproof import render  # jinja2 and yaml: not before they are needed

    keeper = open_keeper()
    return render.goal(render.subject(keeper.sealed(), demo=(await keeper.status()).demo))


async def _skill(open_keeper: Callable[[], Keeper], name: str) -> str:
    from inferproof import render  # jinja2 and yaml: not before they are needed

    keeper = open_keeper()
    subject = render.subject(keeper.sealed(), demo=(await keeper.status()).demo)
    return render.skill_body(name, subject)


async def _prompt(text: Awaitable[str]) -> str:
    try:
        return await text
    except InferproofError as exc:
        raise MCPError(code=INVALID_PARAMS, message=str(exc)) from exc


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise ResourceNotFoundError(
            f"{path.name} cannot be read; run `inferproof init` in the campaign folder"
        ) from exc


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - LEDGER_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as exc:
        raise ResourceNotFoundError("there is no ledger yet; run `inferproof seal`") from exc
    return "\n".join(lines[-LEDGER_LINES:]) + "\n"


def _resource_error(exc: InferproofError) -> ResourceError:
    kind = ResourceNotFoundError if isinstance(exc, NotFound) else ResourceError
    return kind(str(exc))
