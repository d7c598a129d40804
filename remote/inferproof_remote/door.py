"""The one door to a work folder: a question by name, an answer as JSON and bytes.

A keeper on this machine calls `answer`; for one elsewhere `serve` reads questions from a channel,
each a line of JSON and as many bytes as it says, and answers in the same form. Nothing of a
question is ever interpreted by a shell.
"""

import json
import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from inferproof_remote import job, outbox, slurm, workplace
from inferproof_remote.blobs import BlobError, file_digest
from inferproof_remote.jobs import Jobs, Refused, as_json
from inferproof_remote.model_folder import fault

READY = "inferproof-bench-ready"
MEASURES = ("machine",)
_LONGEST_LINE = 16 << 20
_MOST_BYTES = 64 << 20
_IDLE_S = 900.0
_MEASURE_S = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found out: JSON, and bytes beside it."""

    body: Mapping[str, object]
    payload: bytes = b""


class Question:
    """The fields of one question, each read as what it must be."""

    def __init__(self, fields: Mapping[str, object], payload: bytes) -> None:
        self.fields = fields
        self.payload = payload

    def text(self, name: str) -> str:
        """Return a field that is text."""
        (text,) = job.as_texts([self.fields.get(name)], name)
        return text

    def number(self, name: str) -> float:
        """Return a field that is a number."""
        return job.as_number(self.fields.get(name), name)

    def whole(self, name: str) -> int:
        """Return a field that is a whole number."""
        return int(self.number(name))

    def table(self, name: str) -> Mapping[str, object]:
        """Return a field that is an object."""
        return job.as_table(self.fields.get(name), name)

    def rows(self, name: str) -> list[list[object]]:
        """Return a field that is a list of lists."""
        raw = self.fields.get(name)
        if not isinstance(raw, list):
            raise job.JobFormatError(f"{name} is {type(raw).__name__}, not a list")
        found = cast("list[object]", raw)
        if not all(isinstance(row, list) for row in found):
            raise job.JobFormatError(f"{name} holds something else than lists")
        return cast("list[list[object]]", found)


def answer(jobs: Jobs, asked: str, fields: Mapping[str, object], payload: bytes = b"") -> Answer:
    """Return the answer to one question.

    Raises:
        Refused: it is malformed, or what it asks for cannot be done.
    """
    found = _ANSWERS.get(asked)
    if found is None:
        raise Refused("usage", f"this bench has no answer to {asked[:80]!r}")
    try:
        return found(jobs, Question(fields, payload))
    except (job.JobFormatError, BlobError) as error:
        raise Refused("usage", str(error)) from error
    except slurm.SlurmRefused as error:
        hint = "ask `sinfo` there; correct `slurm` of this target in targets.yaml"
        raise Refused("failed", str(error), hint=hint) from error
    except slurm.SlurmError as error:
        raise Refused("unreachable", str(error), hint="ask `scontrol ping` there") from error
    except OSError as error:
        raise Refused("failed", f"{type(error).__name__}: {error}") from error


def open_door(root: Path) -> int:
    """Answer questions about the work folder `root` on stdin and stdout until nobody asks."""
    program = Path(sys.argv[0]).resolve()
    jobs = Jobs(
        root=root,
        python=sys.executable,
        program=program,
        program_digest=file_digest(program) or "",
    )
    (root / "jobs").mkdir(exist_ok=True)
    sys.stdout.buffer.write(f"{READY}\n".encode())
    sys.stdout.buffer.flush()
    try:
        serve(jobs, sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the last flush finds no closed pipe
    return 0


def serve(jobs: Jobs, source: BinaryIO, sink: BinaryIO) -> None:
    """Answer each question of `source` on `sink`, until its end or until nobody asks for long."""
    while select.select([source], [], [], _IDLE_S)[0]:
        line = source.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            return
        head, payload = _answered(jobs, line, source)
        sink.write(json.dumps({**head, "size": len(payload)}, allow_nan=False).encode() + b"\n")
        sink.write(payload)
        sink.flush()


def _answered(jobs: Jobs, line: bytes, source: BinaryIO) -> tuple[dict[str, object], bytes]:
    try:
        asked = Question(job.as_table(json.loads(line), "question"), b"")
        payload = source.read(_size_of(asked))
        found = answer(jobs, asked.text("asked"), asked.table("fields"), payload)
    except Refused as error:
        told = {"code": error.code, "what": error.what, "hint": error.hint}
        return {"refused": told}, b""
    except ValueError as error:
        return {"refused": {"code": "usage", "what": str(error), "hint": ""}}, b""
    return {"body": found.body}, found.payload


def _size_of(asked: Question) -> int:
    size = asked.whole("size")
    if not 0 <= size <= _MOST_BYTES:
        raise Refused("usage", f"{size} bytes are more than a question may have")
    return size


def _ping(jobs: Jobs, asked: Question) -> Answer:
    del asked
    return Answer({"now_s": time.time(), "work_id": workplace.identity(jobs.root)})


def _have(jobs: Jobs, asked: Question) -> Answer:
    digests = job.as_texts(asked.fields.get("digests"), "digests")
    return Answer({"held_bytes": [jobs.blobs.held_bytes(digest) for digest in digests]})


def _put(jobs: Jobs, asked: Question) -> Answer:
    start = 0
    for digest, size in asked.rows("blobs"):
        end = start + int(job.as_number(size, "size"))
        jobs.blobs.put(str(digest), asked.payload[start:end])
        start = end
    return Answer({})


def _add(jobs: Jobs, asked: Question) -> Answer:
    jobs.blobs.add(
        asked.text("digest"),
        asked.payload,
        offset_bytes=asked.whole("offset_bytes"),
        size_bytes=asked.whole("size_bytes"),
    )
    return Answer({})


def _begin(jobs: Jobs, asked: Question) -> Answer:
    inputs = {name: str(digest) for name, digest in asked.table("inputs").items()}
    queue = asked.fields.get("queue")
    options = None if queue is None else job.as_texts(queue, "queue")
    jobs.begin(asked.fields.get("job"), asked.text("secret"), inputs, options)
    return Answer({})


def _again(jobs: Jobs, asked: Question) -> Answer:
    options = job.as_texts(asked.fields.get("queue"), "queue")
    jobs.again(asked.text("job_id"), asked.text("secret"), options)
    return Answer({})


def _void(jobs: Jobs, asked: Question) -> Answer:
    return Answer({"is_void": workplace.void(jobs.root, asked.text("job_id"))})


def _look(jobs: Jobs, asked: Question) -> Answer:
    return Answer(as_json(jobs.look(asked.text("job_id"))))


def _stop(jobs: Jobs, asked: Question) -> Answer:
    jobs.stop(asked.text("job_id"))
    return Answer({})


def _sweep(jobs: Jobs, asked: Question) -> Answer:
    jobs.sweep(asked.text("job_id"))
    return Answer({})


def _log(jobs: Jobs, asked: Question) -> Answer:
    limit = min(asked.whole("limit_bytes"), _MOST_BYTES)
    offset = asked.whole("offset_bytes")
    return Answer({}, jobs.log(asked.text("job_id"), offset_bytes=offset, limit_bytes=limit))


def _tell(jobs: Jobs, asked: Question) -> Answer:
    jobs.tell(asked.text("job_id"), asked.text("name"), asked.table("data"))
    return Answer({})


def _settle(jobs: Jobs, asked: Question) -> Answer:
    keep_s, keep_bytes = asked.number("keep_s"), asked.whole("keep_bytes")
    jobs.settle(asked.text("job_id"), keep_s=keep_s, keep_bytes=keep_bytes)
    return Answer({})


def _left(jobs: Jobs, asked: Question) -> Answer:
    files = outbox.listing(jobs.folder(asked.text("job_id")) / "out")
    return Answer({"files": [[left.name, left.size_bytes, left.written_ns] for left in files]})


def _fetch(jobs: Jobs, asked: Question) -> Answer:
    out = jobs.folder(asked.text("job_id")) / "out"
    pieces: list[bytes] = []
    for name, offset, limit in asked.rows("pieces"):
        start, most = int(job.as_number(offset, "offset")), int(job.as_number(limit, "limit"))
        pieces.append(outbox.read(out, str(name), offset_bytes=start, limit_bytes=most))
    return Answer({"sizes": [len(piece) for piece in pieces]}, b"".join(pieces))


def _measure(jobs: Jobs, asked: Question) -> Answer:
    verb = asked.text("verb")
    if verb not in MEASURES:
        raise Refused("usage", f"{verb[:80]!r} measures nothing")
    return Answer(jobs.measure(verb, timeout_s=_MEASURE_S))


def _models(jobs: Jobs, asked: Question) -> Answer:
    del jobs
    folders = asked.table("folders")
    return Answer({"faults": {name: fault(Path(str(place))) for name, place in folders.items()}})


def _queue(jobs: Jobs, asked: Question) -> Answer:
    del jobs, asked
    return Answer({"says": slurm.partitions()})


_ANSWERS: Mapping[str, Callable[[Jobs, Question], Answer]] = {
    "ping": _ping,
    "have": _have,
    "put": _put,
    "add": _add,
    "begin": _begin,
    "again": _again,
    "void": _void,
    "look": _look,
    "stop": _stop,
    "sweep": _sweep,
    "log": _log,
    "tell": _tell,
    "settle": _settle,
    "left": _left,
    "fetch": _fetch,
    "measure": _measure,
    "models": _models,
    "queue": _queue,
}
