"""What is to be done, resolved against the sealed campaign."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import get_args

from inferproof.campaign.files import CampaignFiles
from inferproof.core.campaign import Target
from inferproof.core.candidate import Candidate
from inferproof.core.errors import NotFound
from inferproof.core.reports import ToolName
from inferproof.core.sealed import SealedContract
from inferproof.core.search_facts import Stage
from inferproof.core.service import EngineSpec
from inferproof.core.serving_facts import BarFacts
from inferproof.core.space import Setting
from inferproof.core.values import Digest, Purpose
from inferproof.ledger.bodies import Attempt

_KERNEL: Mapping[ToolName, str] = {
    "compile_kernel": "compile",
    "check_numerics": "grade",
    "promote": "grade",
    "profile": "profile",
    "run": "run",
}
_SERVICE: Mapping[ToolName, str] = {
    "check_numerics": "serve",
    "run_aiperf": "serve",
    "promote": "serve",
    "deploy": "deploy",
    "run": "run",
    "search_config": "search",
}


def kind_of(tool: str, contract: SealedContract | None) -> str:
    """Return which evidence a tool's jobs produce under a contract.

    Raises:
        NotFound: the tool does nothing for that kind of contract.
    """
    is_service = contract is not None and contract.contract.kind == "service"
    known = _SERVICE if is_service else _KERNEL
    for name, kind in known.items():
        if name == tool:
            return kind
    raise NotFound(
        f"{tool} is not for {'engines' if is_service else 'kernels'}",
        hint=f"tools that are: {', '.join(known)}",
    )


def tool_name(name: str) -> ToolName:
    """Return a recorded tool's name as one of those that there are."""
    return next(tool for tool in get_args(ToolName) if tool == name)


def new_job_id(tool: str) -> str:
    """Return an id that no other job has, and that says when it began."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{tool.replace('_', '-')}-{stamp}-{secrets.token_hex(3)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One configuration to try: what is set of the space, and the baseline so set."""

    number: int
    settings: Mapping[str, Setting]
    spec: EngineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One job of the search arm: what it tries beside the contract's own options."""

    contract: str
    stage: Stage
    proposals: tuple[Proposal, ...]
    restarts: int
    until_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be done, resolved against the sealed campaign."""

    job_id: str
    tool: ToolName
    files: CampaignFiles
    seal_files: Mapping[str, Digest]
    candidate: Candidate | None
    contract: SealedContract | None
    target_name: str
    purpose: Purpose
    argv: tuple[str, ...]
    replicas: int = 1
    round: Round | None = None
    bar: BarFacts | None = None

    @property
    def target(self) -> Target:
        """The inventory's entry for the target."""
        return self.files.targets[self.target_name]

    @property
    def threads(self) -> int:
        """How many threads each arm may use."""
        return self.target.threads or len(os.sched_getaffinity(0))

    @property
    def kind(self) -> str:
        """Which evidence this order produces."""
        return kind_of(self.tool, self.contract)

    @property
    def gpu_count(self) -> int:
        """How many of its target's GPUs it holds; an engine needs all of them."""
        if self.target.host == "slurm":  # the cluster itself gives GPUs out
            return 0
        few = {"compile": 0, "grade": 1, "profile": 1}
        return len(self.target.gpus[: few.get(self.kind)])

    def attempt(self, request_key: str | None) -> Attempt:
        """Return the record of this order, reserving its GPUs for as long as it may run."""
        wall_s = self.files.campaign.budget.job_wall_s
        return Attempt(
            job_id=self.job_id,
            tool=self.tool,
            purpose=self.purpose,
            candidate=self.candidate.digest if self.candidate else None,
            contract=self.contract.contract.name if self.contract else None,
            target=self.target_name,
            request_key=request_key,
            reserved_accelerator_s=self.gpu_count * wall_s if self.gpu_count else None,
        )
