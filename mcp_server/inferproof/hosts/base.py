"""Where jobs run, seen from the server: start one, look at it, end it, fetch what it left."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from inferproof.core.canonical import Json
from inferproof.core.errors import Unreachable
from inferproof.core.machine import Machine
from inferproof.core.queue_facts import QueueStart
from inferproof.core.values import JobStatus

Verb = Literal["compile", "grade", "profile", "run", "facts", "deploy", "serve", "search"]
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job to run. `inputs` maps a path under the job's `in/` to the bytes that go there.

    `secret` is told to the job's supervisor alone, which signs the result with it.
    """

    job_id: str
    verb: Verb
    wall_s: float
    spec: Mapping[str, Json]
    inputs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is, in its own steps."""

    done: int
    total: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """Where a job stands. `rc` is there once it is over; `failure` says why it has no result.

    `starts` are the times that a queue started it.
    """

    status: JobStatus
    rc: int | None = None
    progress: Progress | None = None
    failure: str = ""
    began: bool = True  # False where it is certain that nothing of it ever ran
    starts: tuple[QueueStart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a job needs to come into a queue, now or again; `secret` is its supervisor's."""

    secret: str = field(repr=False)
    options: tuple[str, ...]


class Queue(Protocol):
    """A queue in which jobs wait, rather than being launched at once."""

    def ticket(self, request: JobRequest) -> Ticket:
        """Return what a job is to be queued with, kept for a second start."""
        ...

    def kept(self, job_id: str) -> Ticket | None:
        """Return what a job was queued with; None if it needs no second start any more."""
        ...

    def forget(self, job_id: str) -> None:
        """Keep a job's ticket no longer."""
        ...


class Host(Protocol):
    """A machine that runs jobs which outlive us."""

    @property
    def remote_digest(self) -> str:
        """The digest of the bench code that jobs on this host run."""
        ...

    async def reach(self) -> None:
        """Return once the machine answers; an error says why it does not."""
        ...

    def machine(self) -> Machine:
        """Return what the machine has and allows, measured now."""
        ...

    async def start(self, request: JobRequest) -> None:
        """Start a job; on return it runs by itself and every other `Host` here can find it."""
        ...

    async def state(self, job_id: str) -> JobState:
        """Return where the job stands now."""
        ...

    async def void(self, job_id: str) -> bool:
        """Keep a job from ever beginning; False if it has begun."""
        ...

    async def log_tail(self, job_id: str, *, limit_bytes: int) -> str:
        """Return the last `limit_bytes` of the job's log."""
        ...

    async def log(self, job_id: str, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of the job's log from `offset_bytes` on, as they are."""
        ...

    async def cancel(self, job_id: str) -> JobState:
        """End the job and everything it started; return its final state."""
        ...

    async def tell(self, job_id: str, name: str, data: Mapping[str, Json]) -> None:
        """Leave `data` as the file `name` of a running job, which looks for it."""
        ...

    async def settle(self, job_id: str) -> None:
        """Note that the job's outcome is recorded: its folder may go when it is old."""
        ...

    async def result_dir(self, job_id: str) -> Path:
        """Return a local folder that holds the job's `result.json` and `files/`."""
        ...


def never(state: JobState) -> bool:
    """Say that a job shall be followed to its end."""
    del state
    return False


async def follow(
    host: Host, job_id: str, *, wait_s: float, until: Callable[[JobState], bool] = never
) -> AsyncIterator[JobState]:
    """Yield the job's state now and at each change, until its end, `until`, or `wait_s` passed.

    While the machine cannot be reached, nothing is known to have changed.
    """
    deadline = time.monotonic() + wait_s
    seen: JobState | None = None
    while True:
        state = seen
        with contextlib.suppress(Unreachable):
            state = await host.state(job_id)
        if state is not None and state != seen:
            seen = state
            yield state
        remaining_s = deadline - time.monotonic()
        is_over = state is not None and (state.status.is_final or until(state))
        if is_over or remaining_s <= 0:
            return
        await asyncio.sleep(min(_POLL_S, remaining_s))
