"""What a job leaves for its keeper: regular files below `out/`, never what a link points to."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 100_000


@dataclass(frozen=True, slots=True)
class Left:
    """One file: its path below `out/`, how long it is, and when it was last written."""

    name: str
    size_bytes: int
    written_ns: int


def listing(out: Path) -> list[Left]:
    """Return the regular files below `out`; links, devices and what lies behind them are not."""
    found: list[Left] = []
    for left in _walk(out, ""):
        found.append(left)
        if len(found) >= MOST_FILES:
            break
    return found


def read(out: Path, name: str, *, offset_bytes: int, limit_bytes: int) -> bytes:
    """Return a piece of one of the files that `listing` names.

    Raises:
        OSError: there is none of that name, or it is no regular file.
    """
    if _leads_astray(out, name):
        raise FileNotFoundError(f"no file {name[:80]!r}")
    handle = os.open(out / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FileNotFoundError(f"{name[:80]!r} is no regular file")
        stream.seek(offset_bytes)
        return stream.read(limit_bytes)


def _walk(folder: Path, prefix: str) -> Iterator[Left]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(folder / entry.name, f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            facts = entry.stat(follow_symlinks=False)
            yield Left(f"{prefix}{entry.name}", facts.st_size, facts.st_mtime_ns)


def _leads_astray(out: Path, name: str) -> bool:
    """Whether a part of the path is a link or leads upwards."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return True
    return any((out / "/".join(parts[:end])).is_symlink() for end in range(1, len(parts) + 1))
