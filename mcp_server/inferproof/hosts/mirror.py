"""What jobs on another machine left, copied here when it is asked for."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from inferproof.core.canonical import Json
from inferproof.core.errors import InfrastructureError
from inferproof.hosts.folders import PIECE_BYTES, Line, parsed

MOST_BYTES = 4 << 30
MOST_FILES = 20_000
_QUESTION_S = 60.0
_LONGEST_NAME = 1024
_LATEST_NS = 1 << 62
Left = tuple[str, int, int]
Piece = tuple[str, int, int]


class _Listing(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    files: tuple[Left, ...]


class _Sizes(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    sizes: tuple[int, ...]


class Mirror:
    """A folder of copies, one below it for each job."""

    def __init__(self, line: Line, root: Path) -> None:
        self._line = line
        self._root = root

    async def fetched(self, job_id: str) -> Path:
        """Return the folder with what the job left so far.

        Raises:
            NotFound: there is no such job.
            InfrastructureError: what it left is too much, or has names that lead elsewhere.
        """
        return await asyncio.to_thread(self._fetched, job_id)

    def _fetched(self, job_id: str) -> Path:
        answer = self._line.ask("left", {"job_id": job_id}, timeout_s=_QUESTION_S)
        files = parsed(_Listing, answer).files
        _require_sane(files)
        place = self._root / job_id
        self._root.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{job_id}.", dir=self._root))
        try:
            lacking = [left for left in files if not _kept(left, place, draft)]
            self._fetch(job_id, lacking, draft)
            for name, _, written_ns in files:
                os.utime(draft / name, ns=(written_ns, written_ns))
            _exchange(draft, place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return place

    def _fetch(self, job_id: str, files: Sequence[Left], draft: Path) -> None:
        """Copy files, as many pieces at once as an answer may carry."""
        waiting = [
            (name, start, min(PIECE_BYTES, size - start))
            for name, size, _ in files
            for start in range(0, max(size, 1), PIECE_BYTES)
        ]
        while waiting:
            room, pieces = PIECE_BYTES, list[Piece]()
            while waiting and (not pieces or waiting[0][2] <= room):
                pieces.append(waiting.pop(0))
                room -= pieces[-1][2]
            self._fetch_pieces(job_id, pieces, draft)

    def _fetch_pieces(self, job_id: str, pieces: Sequence[Piece], draft: Path) -> None:
        asked: list[Json] = [list(piece) for piece in pieces]
        fields: dict[str, Json] = {"job_id": job_id, "pieces": asked}
        answer = self._line.ask("fetch", fields, timeout_s=_QUESTION_S)
        sizes = parsed(_Sizes, answer).sizes
        _require_as_asked(pieces, sizes, len(answer.payload))
        start = 0
        for (name, _, _), size in zip(pieces, sizes, strict=True):
            path = draft / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as stream:
                stream.write(answer.payload[start : start + size])
            start += size


def _require_as_asked(pieces: Sequence[Piece], sizes: Sequence[int], payload_bytes: int) -> None:
    """Refuse an answer that holds more, or less, than it says or was asked for."""
    fits = len(sizes) == len(pieces) and sum(sizes) == payload_bytes
    if not fits or any(
        not 0 <= size <= most for size, (_, _, most) in zip(sizes, pieces, strict=True)
    ):
        raise InfrastructureError("the machine answered with other pieces of files than were asked")


def _require_sane(files: Sequence[Left]) -> None:
    names = {name for name, _, _ in files}
    for name, size, written_ns in files:
        parts = name.split("/")
        is_clean = name.isprintable() and len(name) <= _LONGEST_NAME and "\\" not in name
        is_whole = size >= 0 and 0 <= written_ns < _LATEST_NS
        is_folder_too = any("/".join(parts[:depth]) in names for depth in range(1, len(parts)))
        if not (is_clean and is_whole) or is_folder_too or {"", ".", ".."} & set(parts):
            raise InfrastructureError(f"the job left a file named {name[:80]!r}, which is refused")
    if len(names) < len(files):
        raise InfrastructureError("the job left two files of one name, which is refused")
    if len(files) > MOST_FILES or sum(size for _, size, _ in files) > MOST_BYTES:
        what = f"the job left {len(files)} files with more than may be fetched"
        most = f"at most {MOST_FILES} files and {MOST_BYTES >> 30} GiB"
        raise InfrastructureError(what, hint=most)


def _kept(left: Left, place: Path, draft: Path) -> bool:
    """Take over a file that was fetched before and has not changed since."""
    name, size, written_ns = left
    try:
        facts = (place / name).lstat()
        if (facts.st_size, facts.st_mtime_ns) != (size, written_ns):
            return False
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        os.link(place / name, draft / name)
    except OSError:
        return False
    return True


def _exchange(draft: Path, place: Path) -> None:
    """Put the new copy in the place of the old one."""
    old = draft.with_name(f"{draft.name}.old")
    if place.exists():
        place.rename(old)
    draft.rename(place)
    shutil.rmtree(old, ignore_errors=True)
