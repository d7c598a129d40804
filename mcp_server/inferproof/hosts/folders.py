"""Jobs as folders of a machine, asked about through a line: all that hosts have in common."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from inferproof.core.canonical import Json, digest_bytes
from inferproof.core.errors import InfrastructureError, NotFound, Unreachable, UsageError
from inferproof.core.harmless import harmless
from inferproof.core.machine import Machine
from inferproof.core.queue_facts import QueueStart
from inferproof.core.values import JobStatus
from inferproof.hosts.base import JobRequest, JobState, Progress, Queue

DONE, CANCELLED = 0, 143
PIECE_BYTES = 4 << 20
LAUNCH_S = 30.0
_CANCEL_S = 15.0
_POLL_S = 0.02
_QUESTION_S = 30.0
_LONG_QUESTION_S = 60.0
_MEASURE_S = 150.0
_KEEP_S, _KEEP_BYTES = 7 * 86400.0, 20 << 30
Reply = TypeVar("Reply", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the door of a work folder answered: JSON, and bytes beside it."""

    body: Mapping[str, object]
    payload: bytes = b""


class Line(Protocol):
    """A way to the door of a work folder."""

    def ask(
        self, asked: str, fields: Mapping[str, Json], payload: bytes = b"", *, timeout_s: float
    ) -> Answer:
        """Return the answer to one question; a question that got lost is asked again.

        Raises:
            NotFound, UsageError: the door says so.
            InfrastructureError: it cannot be done, or nobody answers.
        """
        ...

    def close(self) -> None:
        """Let go of whatever the line is made of."""
        ...


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Held(_Reply):
    held_bytes: tuple[int | None, ...]


class _Faults(_Reply):
    faults: dict[str, str]


class _Says(_Reply):
    says: str


class Clock(_Reply):
    """What time it is there, and in which work folder."""

    now_s: float
    work_id: str


class _Void(_Reply):
    is_void: bool


class _Step(_Reply):
    done: int
    total: int
    message: str


class Look(_Reply):
    """What a job folder says. `alive` is None while no supervisor has signed in."""

    rc: int | None
    alive: bool | None
    age_s: Annotated[float, Field(ge=0)]
    failure: str
    progress: dict[str, object] | None
    waits: str = ""
    is_fault: bool = False
    starts: tuple[QueueStart, ...] = ()


class Folders:
    """The jobs of one work folder, here or elsewhere: whoever has a line to it sees the same."""

    def __init__(self, line: Line, *, remote_digest: str, queue: Queue | None = None) -> None:
        self._line = line
        self._remote_digest = remote_digest
        self._queue = queue

    @property
    def remote_digest(self) -> str:
        """The digest of the bench code that jobs on this host run."""
        return self._remote_digest

    async def reach(self) -> None:
        """Return once the machine answers.

        Raises:
            InfrastructureError: it does not, or cannot be worked on.
        """
        await asyncio.to_thread(self._line.ask, "ping", {}, timeout_s=_QUESTION_S)

    async def start(self, request: JobRequest) -> None:
        """Bring a job's inputs, make its folder and launch its supervisor.

        Raises:
            UsageError: the id is malformed or taken, or an input has no place in the folder.
            InfrastructureError: the machine cannot be reached, or the supervisor did not start.
        """
        await asyncio.to_thread(self._start, request)

    async def state(self, job_id: str) -> JobState:
        """Return where the job stands now.

        Raises:
            NotFound: no job of that id was started here.
        """
        return await asyncio.to_thread(self._state, job_id)

    async def void(self, job_id: str) -> bool:
        """Keep a job from ever beginning; False if it has begun."""
        return await asyncio.to_thread(self._void, job_id)

    async def log(self, job_id: str, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of the job's log from `offset_bytes` on, as they are."""
        return await asyncio.to_thread(self._log, job_id, offset_bytes, limit_bytes)

    async def log_tail(self, job_id: str, *, limit_bytes: int) -> str:
        """Return the last `limit_bytes` of the job's log as harmless text."""
        data = await self.log(job_id, offset_bytes=-limit_bytes, limit_bytes=limit_bytes)
        return harmless(data.decode(errors="replace"))

    async def cancel(self, job_id: str) -> JobState:
        """End the job and everything it started; return its final state.

        Raises:
            NotFound: no job of that id was started here.
            InfrastructureError: something of the job could not be ended.
        """
        look = await asyncio.to_thread(self._look, job_id)
        if look.rc is None:
            await self._about(job_id, "stop")
            deadline = time.monotonic() + _CANCEL_S
            while (look.alive or look.waits) and time.monotonic() < deadline:
                await asyncio.sleep(_POLL_S)
                look = await asyncio.to_thread(self._look, job_id)
            if look.rc is None:
                await self._about(job_id, "sweep")
        return await self.state(job_id)

    async def tell(self, job_id: str, name: str, data: Mapping[str, Json]) -> None:
        """Leave `data` as the file `name` of a running job, whole or not at all.

        Raises:
            NotFound: no job of that id was started here.
        """
        await self._about(job_id, "tell", {"name": name, "data": data})

    def machine(self) -> Machine:
        """Return what the machine has, and how far its clock is ahead of ours.

        Raises:
            InfrastructureError: it cannot be reached, or cannot say.
        """
        answer = self._line.ask("measure", {"verb": "machine"}, timeout_s=_MEASURE_S)
        before = time.time()
        now_s = parsed(Clock, self._line.ask("ping", {}, timeout_s=_QUESTION_S)).now_s
        skew_s = now_s - (before + time.time()) / 2
        return parsed(Machine, answer).model_copy(update={"skew_s": skew_s})

    def queue_says(self) -> str:
        """Return what the queue says of its partitions.

        Raises:
            Unreachable: it does not answer.
        """
        answer = self._line.ask("queue", {}, timeout_s=_QUESTION_S)
        return harmless(parsed(_Says, answer).says)

    def close(self) -> None:
        """Let go of the line; jobs go on."""
        self._line.close()

    def model_faults(self, folders: Mapping[str, str]) -> Mapping[str, str]:
        """Return what is wrong with each model's folder; nothing if it is whole."""
        answer = self._line.ask("models", {"folders": folders}, timeout_s=_QUESTION_S)
        return {name: harmless(told) for name, told in parsed(_Faults, answer).faults.items()}

    async def settle(self, job_id: str) -> None:
        """Note that the job's outcome is recorded: its folder may go when it is old."""
        if self._queue is not None:
            self._queue.forget(job_id)
        await self._about(job_id, "settle", {"keep_s": _KEEP_S, "keep_bytes": _KEEP_BYTES})

    async def _about(
        self, job_id: str, asked: str, fields: Mapping[str, Json] | None = None
    ) -> None:
        fields = {"job_id": job_id, **(fields or {})}
        await asyncio.to_thread(self._line.ask, asked, fields, timeout_s=_LONG_QUESTION_S)

    def _void(self, job_id: str) -> bool:
        answer = self._line.ask("void", {"job_id": job_id}, timeout_s=_QUESTION_S)
        return parsed(_Void, answer).is_void

    def _start(self, request: JobRequest) -> None:
        began = time.monotonic()
        inputs = self.stage(request.inputs)
        if time.monotonic() - began > LAUNCH_S / 2:
            # Whoever finds the attempt meanwhile takes it for one that never began.
            what = f"the inputs of job {request.job_id!r} took too long to travel"
            raise InfrastructureError(what, hint="they are there now: start it again")
        job: dict[str, Json] = {
            "schema": 1,
            "job_id": request.job_id,
            "verb": request.verb,
            "wall_s": request.wall_s,
            "spec": request.spec,
        }
        fields: dict[str, Json] = {"job": job, "secret": request.secret, "inputs": inputs}
        if self._queue is not None:
            fields["queue"] = list(self._queue.ticket(request).options)
        self._line.ask("begin", fields, timeout_s=_LONG_QUESTION_S)

    def stage(self, contents: Mapping[str, bytes]) -> dict[str, str]:
        """Bring files to the machine, each only if it is not there; return {name: digest}."""
        digests = {name: digest_bytes(data) for name, data in contents.items()}
        waiting = {digests[name]: data for name, data in contents.items()}
        small: list[tuple[str, bytes]] = []
        for digest, held_bytes in self._held(list(waiting)).items():
            data = waiting[digest]
            if held_bytes is not None and len(data) > PIECE_BYTES:
                self._put_in_pieces(digest, data, held_bytes)
            elif held_bytes is not None:
                small.append((digest, data))
        self._put(small)
        return digests

    def _held(self, digests: Sequence[str]) -> dict[str, int | None]:
        """Return how much of each file is there; None says all of it."""
        if not digests:
            return {}
        answer = self._line.ask("have", {"digests": digests}, timeout_s=_QUESTION_S)
        return dict(zip(digests, parsed(_Held, answer).held_bytes, strict=True))

    def _put(self, blobs: Sequence[tuple[str, bytes]]) -> None:
        """Bring small files, as many at once as a question may carry."""
        waiting = list(blobs)
        while waiting:
            size, batch = 0, list[tuple[str, bytes]]()
            while waiting and size + len(waiting[-1][1]) <= PIECE_BYTES:
                size += len(waiting[-1][1])
                batch.append(waiting.pop())
            fields: dict[str, Json] = {"blobs": [[digest, len(data)] for digest, data in batch]}
            payload = b"".join(data for _, data in batch)
            self._line.ask("put", fields, payload, timeout_s=_LONG_QUESTION_S)

    def _put_in_pieces(self, digest: str, data: bytes, offset_bytes: int) -> None:
        """Bring a big file, from where an earlier try ended."""
        for start in range(offset_bytes, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            fields: dict[str, Json] = {
                "digest": digest,
                "offset_bytes": start,
                "size_bytes": len(data),
            }
            self._line.ask("add", fields, piece, timeout_s=_LONG_QUESTION_S)

    def _look(self, job_id: str) -> Look:
        answer = self._line.ask("look", {"job_id": job_id}, timeout_s=_QUESTION_S)
        return parsed(Look, answer)

    def _state(self, job_id: str) -> JobState:
        look = self._look(job_id)
        if look.is_fault and self._queue is not None:
            look = self._started_again(job_id, look, self._queue)
        return replace(state_of(look), starts=look.starts)

    def _started_again(self, job_id: str, look: Look, queue: Queue) -> Look:
        """Return how a job stands that the machine ended: started a second time, if that is due."""
        ticket = queue.kept(job_id)
        if ticket is None:
            return look
        options, secret = list(ticket.options), ticket.secret
        fields: dict[str, Json] = {"job_id": job_id, "secret": secret, "queue": options}
        try:
            self._line.ask("again", fields, timeout_s=_LONG_QUESTION_S)
        except Unreachable:
            raise
        except InfrastructureError as error:
            why = f"{look.failure}; it cannot be started again: {error}"
            return look.model_copy(update={"failure": why})
        return self._look(job_id)

    def _log(self, job_id: str, offset_bytes: int, limit_bytes: int) -> bytes:
        fields: dict[str, Json] = {
            "job_id": job_id,
            "offset_bytes": offset_bytes,
            "limit_bytes": limit_bytes,
        }
        return self._line.ask("log", fields, timeout_s=_QUESTION_S).payload[:limit_bytes]


def state_of(look: Look) -> JobState:
    """Return where a job stands, from what its folder says: the only place that decides it."""
    progress = _progress(look)
    if look.rc is not None:
        failure = "" if look.rc == DONE else harmless(look.failure)
        return JobState(status=_final(look.rc), rc=look.rc, progress=progress, failure=failure)
    if look.waits:
        before = [start.ended for start in look.starts if start.is_fault]
        step = Progress(done=0, total=1, message="; ".join([*before, harmless(look.waits)]))
        return JobState(status=JobStatus.QUEUED, progress=step)
    if look.alive is None and look.age_s < LAUNCH_S:
        return JobState(status=JobStatus.QUEUED)
    if look.alive:
        return JobState(status=JobStatus.RUNNING, progress=progress)
    return JobState(
        status=JobStatus.INFRA if look.is_fault else JobStatus.LOST,
        progress=progress,
        failure=harmless(look.failure)
        or "the supervisor is gone and left no exit code (killed, or the machine restarted)",
    )


def parsed(model: type[Reply], answer: Answer) -> Reply:
    """Return the body of an answer as a value.

    Raises:
        InfrastructureError: it has another form.
    """
    try:
        return model.model_validate_json(json.dumps(answer.body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        what = f"the bench's answer cannot be read: {first['loc']}: {first['msg']}"
        raise InfrastructureError(what) from error


def refusal(code: str, what: str, hint: str) -> InfrastructureError | UsageError:
    """Return the error that a door's refusal stands for."""
    kinds = {"not_found": NotFound, "usage": UsageError, "unreachable": Unreachable}
    return kinds.get(code, InfrastructureError)(harmless(what), hint=harmless(hint))


def _progress(look: Look) -> Progress | None:
    try:
        step = _Step.model_validate(look.progress)
    except ValidationError:
        return None
    return Progress(done=step.done, total=step.total, message=harmless(step.message))


def _final(rc: int) -> JobStatus:
    match rc:
        case 0:
            return JobStatus.DONE
        case 143:
            return JobStatus.CANCELLED
        case _:
            return JobStatus.FAILED
