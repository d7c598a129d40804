"""What a tool is made of: a function, its hints to the host, and what it is given to work with."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from pydantic import Field

from inferproof.core.candidate import Candidate
from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.evidence import Evidence
from inferproof.core.reports import JobReport, PromotionReport, Started
from inferproof.core.values import Purpose
from inferproof.tools.results import ToolResult

if TYPE_CHECKING:  # it reads YAML, which the server does not need to start
    from inferproof.campaign.files import CampaignFiles
    from inferproof.search.arm import SearchReport

Progress = Callable[[float, float, str], Awaitable[None]]
StartedTool = Literal["compile_kernel", "check_numerics", "profile", "run", "run_aiperf", "deploy"]

CandidateRef = Annotated[
    str,
    Field(
        pattern=r"^[0-9a-f]{64}$",
        description="Digest of a submitted candidate: 64 lower-case hex digits, "
        "as submit_candidate returned it.",
    ),
]
TargetName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$",
        description="Name of a target in the user's inventory targets.yaml. Default: local.",
    ),
]
Wait = Annotated[
    float,
    Field(
        ge=0,
        le=50,
        description="Seconds to wait for the end before a job handle is returned. "
        "0 to 50, default 45.",
    ),
]
RequestKey = Annotated[
    str | None,
    Field(
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Your own name for this start, 1 to 64 of A-Z a-z 0-9 _ . -; "
        "the same key again finds the same job instead of starting another. Default: none.",
    ),
]


class Status(Protocol):
    """Where the campaign stands, in words."""

    @property
    def summary(self) -> str:
        """Say where the campaign stands."""
        ...

    @property
    def demo(self) -> bool:
        """Say whether the seal is by a throw-away key that proves nothing."""
        ...

    @property
    def next_steps(self) -> tuple[str, ...]:
        """Say what is left to do, most useful first."""
        ...


class Rollout(Protocol):
    """The running deployments."""

    async def scale(self, candidate: str, *, target: str, replicas: int) -> str | None:
        """Tell a candidate's running deployment how many replicas to have; return its job."""
        ...

    async def facts(self, job_id: str) -> DeployFacts | None:
        """Return how a deployment stands by its own word."""
        ...


class Search(Protocol):
    """Plain search over a baseline's options."""

    async def go_on(
        self, contract: str, *, target: str, wait_s: float, on_progress: Progress | None
    ) -> "SearchReport":
        """Go on with a contract's search; return where it stands."""
        ...


class Keeper(Protocol):
    """The part of the keeper that tools ask."""

    @property
    def rollout(self) -> Rollout:
        """The running deployments."""
        ...

    @property
    def search(self) -> Search:
        """Plain search over a baseline's options."""
        ...

    def head(self) -> str:
        """Return the digest of the newest ledger entry."""
        ...

    def sealed(self) -> "CampaignFiles":
        """Return the campaign exactly as it was sealed."""
        ...

    def submit_candidate(self, folder: Path) -> Candidate:
        """Snapshot a folder as a candidate."""
        ...

    def entry_of(self, candidate: str) -> str:
        """Return the entry that recorded a candidate."""
        ...

    async def start(
        self,
        tool: StartedTool,
        *,
        candidate: str | None,
        target: str,
        purpose: Purpose,
        request_key: str | None,
        argv: tuple[str, ...] = (),
        replicas: int = 1,
    ) -> Started:
        """Start a job, or find the one of that request key; it is in the ledger by then."""
        ...

    async def follow(
        self,
        job_id: str,
        *,
        wait_s: float,
        on_progress: Progress | None,
        replicas: int | None = None,
    ) -> JobReport:
        """Wait up to `wait_s` seconds for the end of a job, or for its replicas; report it."""
        ...

    async def report(self, job_id: str) -> JobReport:
        """Report a job as it stands."""
        ...

    async def jobs(self) -> Sequence[JobReport]:
        """Report all jobs, oldest first."""
        ...

    async def cancel(self, job_id: str) -> JobReport:
        """Stop a job and everything it started."""
        ...

    async def promote(
        self, candidate: str, *, target: str, wait_s: float, on_progress: Progress | None
    ) -> PromotionReport:
        """Run every gate again and, if all pass and a person approved, move the champion."""
        ...

    async def status(self) -> Status:
        """Say where the campaign stands."""
        ...

    def evidence(self, ref: str) -> Evidence:
        """Return stored evidence by its digest or its job id."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request: whom to ask, whom to tell, and whether the server itself is going away."""

    keeper: Keeper
    on_progress: Progress | None
    server_is_ending: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. Hosts run it unattended if it only reads, or neither destroys nor reaches out."""

    function: Callable[..., Awaitable[ToolResult]]
    title: str
    read_only: bool
    idempotent: bool

    @property
    def name(self) -> str:
        """The tool's name is its function's name."""
        return self.function.__name__

    @property
    def description(self) -> str:
        """The function's docstring, without its indentation."""
        lines = (self.function.__doc__ or "").strip().splitlines()
        return "\n".join(line.strip() for line in lines)
