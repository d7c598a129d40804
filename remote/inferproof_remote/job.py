"""The job folder as values: what was asked (`job.json`) and what is told back."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import cast

SCHEMA = 1
MARK = "INFERPROOF_JOB"
ASKED = "INFERPROOF_ASKED"
VERBS = ("compile", "grade", "profile", "run", "facts", "deploy", "serve", "search")
_JOB_ID = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")
_LONGEST_WALL_S = 7 * 86400.0


class JobFormatError(ValueError):
    """`job.json` does not have the form that this package reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job as asked: which verb, for how long, on what."""

    schema: int
    job_id: str
    verb: str
    wall_s: float
    spec: Mapping[str, object]

    @property
    def digest(self) -> str:
        """The name of all that was asked; the keeper computes it by the same rule."""
        return digest_json(asdict(self))


def digest_json(value: object) -> str:
    """Return the SHA-256 of the one JSON text that stands for `value`, as the server writes it."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def read_job(job_dir: Path) -> JobSpec:
    """Return the job that `job_dir/job.json` asks for.

    Raises:
        JobFormatError: the file is missing, is not JSON, has another form, or is not what this
            job's supervisor read.
    """
    try:
        raw: object = json.loads((job_dir / "job.json").read_bytes())
    except (OSError, ValueError) as error:
        raise JobFormatError(f"{job_dir / 'job.json'}: {error}") from error
    asked = parse_job(raw)
    if os.environ.get(ASKED, asked.digest) != asked.digest:
        raise JobFormatError(f"{job_dir / 'job.json'} was exchanged after the job began")
    return asked


def parse_job(raw: object) -> JobSpec:
    """Return `raw` as a job; unknown, missing and mistyped keys are errors.

    Raises:
        JobFormatError: `raw` is not a job of this schema.
    """
    table = as_table(raw, "job")
    wanted = {field.name for field in fields(JobSpec)}
    if set(table) != wanted:
        odd = ", ".join(sorted(set(table) ^ wanted))
        raise JobFormatError(f"job keys differ from schema {SCHEMA}: {odd}")
    if table["schema"] != SCHEMA:
        raise JobFormatError(f"job schema is {table['schema']!r}; this bench reads {SCHEMA}")
    return JobSpec(
        schema=SCHEMA,
        job_id=as_job_id(table["job_id"]),
        verb=_one_of(table["verb"]),
        wall_s=_wall_s(table["wall_s"]),
        spec=as_table(table["spec"], "spec"),
    )


def as_table(raw: object, name: str) -> Mapping[str, object]:
    """Return `raw` as a mapping with string keys.

    Raises:
        JobFormatError: `raw` is something else.
    """
    if not isinstance(raw, dict):
        raise JobFormatError(f"{name} is {type(raw).__name__}, not an object")
    return cast("dict[str, object]", raw)


def as_job_id(raw: object) -> str:
    """Return `raw` as the name of a job, which is a plain name of a folder, too.

    Raises:
        JobFormatError: `raw` is something else.
    """
    if not isinstance(raw, str) or not _JOB_ID.fullmatch(raw):
        raise JobFormatError(f"job_id {raw!r} does not match {_JOB_ID.pattern}")
    return raw


def as_number(raw: object, name: str) -> float:
    """Return `raw` as a float; a bool is not a number.

    Raises:
        JobFormatError: `raw` is something else.
    """
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise JobFormatError(f"{name} is {raw!r}, not a number")
    return float(raw)


def as_texts(raw: object, name: str) -> tuple[str, ...]:
    """Return `raw` as a tuple of strings.

    Raises:
        JobFormatError: `raw` is something else.
    """
    if not isinstance(raw, list):
        raise JobFormatError(f"{name} is {raw!r}, not a list of strings")
    texts: list[str] = []
    for item in cast("list[object]", raw):
        if not isinstance(item, str):
            raise JobFormatError(f"{name} holds {item!r}, which is not a string")
        texts.append(item)
    return tuple(texts)


def write_result(job_dir: Path, result: object) -> None:
    """Leave `result` as `out/result.json`, whole or not at all."""
    out = job_dir / "out"
    out.mkdir(exist_ok=True)
    write_atomically(out / "result.json", json.dumps(result, allow_nan=False))


def report_progress(job_dir: Path, done: int, total: int, message: str) -> None:
    """Leave the present progress as `progress.json`."""
    text = json.dumps({"done": done, "total": total, "message": message[:200]})
    write_atomically(job_dir / "progress.json", text)


def write_failure(job_dir: Path, what: str) -> None:
    """Leave one line that says why there is no result; the first line written stays."""
    path = job_dir / "failure"
    if not path.exists():
        write_atomically(path, " ".join(what.split())[:1000] + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to disk and rename it into place, so that a reader sees all of it or none."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def sandbox_name(label: str) -> str:
    """Return the name of this job's sandbox for `label`; by it the supervisor finds leftovers."""
    return f"{os.environ.get(MARK) or f'pid-{os.getpid()}'}.{label}"


def _one_of(raw: object) -> str:
    if not isinstance(raw, str) or raw not in VERBS:
        raise JobFormatError(f"verb {raw!r} is not one of {', '.join(VERBS)}")
    return raw


def _wall_s(raw: object) -> float:
    wall_s = as_number(raw, "wall_s")
    if not 0 < wall_s <= _LONGEST_WALL_S:
        raise JobFormatError(f"wall_s {wall_s!r} is outside (0, {_LONGEST_WALL_S:g}]")
    return wall_s
