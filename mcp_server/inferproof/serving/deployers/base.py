"""How replicas of an engine live somewhere: one interface for every kind of place.

A deployer keeps nothing in memory: what it deployed is found again by name. `deploy` may be asked
for again at any time; the same name and version give the same deployment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol

from pydantic import Field

from inferproof.core.campaign import Limits
from inferproof.core.canonical import Json, digest_json
from inferproof.core.places import Label
from inferproof.core.values import Digest, Value
from inferproof.serving.engines.base import Plan

ENGINE_PORT = 8000


class Service(Value):
    """What is deployed: an engine from a candidate's snapshot, and how many of it.

    `model` is a folder on the machine, or in a cluster the name of what holds it.
    """

    name: Label
    candidate: Digest
    plan: Plan
    replicas: Annotated[int, Field(ge=0, le=256)] = 1
    limits: Limits = Limits()
    threads: Annotated[int, Field(ge=1, le=4096)] = 1
    gpus_each: Annotated[int, Field(ge=0, le=16)] = 0
    model: str = ""

    @property
    def version(self) -> Digest:
        """The name of all that a replica is; how many there are is no part of it."""
        body: Mapping[str, Json] = self.model_dump(mode="json", exclude={"replicas", "name"})
        return digest_json(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A service and the files of its candidate."""

    service: Service
    contents: Mapping[str, bytes] = field(repr=False)


class Status(Value):
    """Where a deployment stands. `version` is what new replicas are, `previous` what they were."""

    phase: Literal["absent", "starting", "ready", "degraded"]
    desired: int = 0
    ready: int = 0
    version: Digest | None = None
    previous: Digest | None = None
    candidate: Digest | None = None
    reason: str = ""


class Endpoint(Value):
    """Where a deployment is called. `auth` says what a caller must bring; `paths` what differs."""

    url: str
    auth: Literal["none", "api key"] = "none"
    paths: dict[str, str] = {}


class Capabilities(Value):
    """What a kind of place can do."""

    deploys: bool
    scale_to_zero: bool
    rolls_without_spare: bool
    logs: bool
    gpus: bool


class Deployer(Protocol):
    """One kind of place. Every call has a deadline; no secret is in any file or command."""

    @property
    def capabilities(self) -> Capabilities:
        """What this place can do."""
        ...

    def render(self, release: Release) -> Mapping[str, bytes]:
        """Return the files that describe the deployment there."""
        ...

    def validate(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return what is wrong with rendered files, without asking anybody."""
        ...

    def deploy(self, release: Release) -> Status:
        """Bring a service to this version and number of replicas; serve all the while."""
        ...

    def status(self, name: str) -> Status:
        """Return where a service stands now."""
        ...

    def endpoint(self, name: str) -> Endpoint:
        """Return where it is called. Raises NotFound if there is no such service."""
        ...

    def scale(self, name: str, replicas: int) -> Status:
        """Have another number of replicas; drop no request. Raises NotFound."""
        ...

    def promote(self, name: str, to: str) -> Status:
        """Bring the service `to` to the version that `name` has. Raises NotFound."""
        ...

    def rollback(self, name: str) -> Status:
        """Bring a service back to the version before. Raises NotFound if there is none."""
        ...

    def logs(self, name: str, *, since_s: float) -> Iterator[str]:
        """Yield what its replicas printed since then, each line with its replica's name."""
        ...

    def delete(self, name: str) -> Status:
        """End a service and all that belongs to it; gone is gone, also if it never was."""
        ...
