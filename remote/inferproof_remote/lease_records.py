"""What the files of a lease folder say: who waits for a GPU, who was given it, by which token."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast

from inferproof_remote import job, processes
from inferproof_remote.incidents import BenchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A place in the queue; the lower number came first."""

    number: int
    job: str
    gpus: tuple[str, ...]
    exclusive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A job that was given a GPU, and the one process that holds its lock."""

    owner: str
    job: str
    pid: int
    start_ticks: int
    token: int
    mode: str
    since: float
    until: float

    @property
    def is_alive(self) -> bool:
        """Whether that very process is there."""
        found = processes.find(self.pid)
        return found is not None and found.start_ticks == self.start_ticks and found.state != "Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of one GPU: its newest tokens, who was given it, how long it is held."""

    token: int = 0
    exclusive_token: int = 0
    mean_held_s: float | None = None
    holders: tuple[Holder, ...] = ()


def ahead(ticket: Ticket, queue: Iterable[Ticket]) -> tuple[Ticket, ...]:
    """Return who must be served before `ticket`: who came earlier and cannot share with it."""
    mine = set(ticket.gpus)
    return tuple(
        other
        for other in queue
        if other.number < ticket.number
        and mine.intersection(other.gpus)
        and (ticket.exclusive or other.exclusive)
    )


def is_newest(record: Record, token: int, *, exclusive: bool) -> bool:
    """Whether nobody was given the GPU since who cannot share it with the holder of `token`."""
    return record.token == token if exclusive else record.exclusive_token < token <= record.token


def read_record(path: Path) -> Record:
    """Return what a file says of a GPU; a file that is not there says that nobody had it yet.

    Raises:
        BenchError: it is damaged, or of another version.
    """
    try:
        raw = _exactly(json.loads(path.read_bytes()), Record)
        mean_s = raw["mean_held_s"]
        return Record(
            token=_whole(raw, "token"),
            exclusive_token=_whole(raw, "exclusive_token"),
            mean_held_s=None if mean_s is None else job.as_number(mean_s, "mean_held_s"),
            holders=tuple(map(_holder, _list(raw, "holders"))),
        )
    except FileNotFoundError:
        return Record()
    except ValueError as error:
        raise _odd(path, error) from error


def read_ticket(path: Path) -> Ticket | None:
    """Return what a ticket says; None if it was taken away meanwhile.

    Raises:
        BenchError: it is damaged, or of another version.
    """
    try:
        raw = _exactly(json.loads(path.read_bytes()), Ticket)
        return Ticket(
            number=_whole(raw, "number"),
            job=_text(raw, "job"),
            gpus=job.as_texts(raw["gpus"], "gpus"),
            exclusive=raw["exclusive"] is True,
        )
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _odd(path, error) from error


def _holder(row: object) -> Holder:
    raw = _exactly(row, Holder)
    return Holder(
        owner=_text(raw, "owner"),
        job=_text(raw, "job"),
        pid=_whole(raw, "pid"),
        start_ticks=_whole(raw, "start_ticks"),
        token=_whole(raw, "token"),
        mode=_text(raw, "mode"),
        since=job.as_number(raw["since"], "since"),
        until=job.as_number(raw["until"], "until"),
    )


def _exactly(raw: object, kind: type[Ticket | Holder | Record]) -> Mapping[str, object]:
    """Return a table that has the keys of `kind` and no others."""
    table = job.as_table(raw, kind.__name__)
    odd = {field.name for field in fields(kind)} ^ set(table)
    if odd:
        raise job.JobFormatError(f"keys of a {kind.__name__} differ: {', '.join(sorted(odd))}")
    return table


def _whole(raw: Mapping[str, object], name: str) -> int:
    return int(job.as_number(raw[name], name))


def _text(raw: Mapping[str, object], name: str) -> str:
    return job.as_texts([raw[name]], name)[0]


def _list(raw: Mapping[str, object], name: str) -> list[object]:
    found = raw[name]
    if not isinstance(found, list):
        raise job.JobFormatError(f"{name} is no list")
    return cast("list[object]", found)


def _odd(path: Path, error: ValueError) -> BenchError:
    return BenchError(
        f"{path} was damaged, or written by another version of inferproof ({error}): "
        "once no job holds or awaits a GPU here, remove it"
    )
