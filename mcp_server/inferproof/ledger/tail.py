"""Reading a ledger file forward: whole lines become entries, what a dead writer left is told apart.

A writer that dies leaves the beginning of one line, without its newline. After a power cut the
last line may also be unparsable. Anything else that is wrong is damage, and never repaired.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader

from inferproof.core.errors import LedgerError
from inferproof.core.values import Digest, Entry
from inferproof.ledger.chain import line_is_whole, parse_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a reader stands: the byte offset, and what the next entry must carry."""

    offset_bytes: int
    next_seq: int
    head: Digest

    def after(self, entry: Entry, size_bytes: int) -> "Position":
        """Return the position behind `entry`, whose line has `size_bytes`."""
        return Position(
            offset_bytes=self.offset_bytes + size_bytes,
            next_seq=entry.seq + 1,
            head=entry.digest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An entry and the size of its line, or no entry and the torn bytes where the file ends."""

    entry: Entry | None
    size_bytes: int
    torn: bytes = b""


def read_forward(file: BufferedReader, position: Position) -> Iterator[Step]:
    """Yield what lies behind `position`, in order; a torn tail comes last.

    Raises:
        LedgerError: a line was damaged or does not follow from the one before it.
    """
    file.seek(position.offset_bytes)
    for line in file:
        entry = _entry_or_none(line)
        if entry is None and file.read(1):
            raise _damaged(position, "is not a ledger entry")
        if entry is not None:
            _require_next(line, entry, position)
        if entry is None or not line.endswith(b"\n"):
            yield Step(entry=None, size_bytes=len(line), torn=line)
        else:
            yield Step(entry=entry, size_bytes=len(line))
            position = position.after(entry, len(line))


def is_complete(torn: bytes) -> bool:
    """Return whether only the newline is missing: then all of the entry was written."""
    return not torn.endswith(b"\n") and _entry_or_none(torn) is not None


def _entry_or_none(line: bytes) -> Entry | None:
    try:
        return parse_line(line)
    except LedgerError:
        return None


def _require_next(line: bytes, entry: Entry, position: Position) -> None:
    if not line_is_whole(line):
        raise _damaged(position, "does not match its digest")
    if (entry.seq, entry.prev) != (position.next_seq, position.head):
        raise _damaged(position, "does not follow from the entry before it")


def _damaged(position: Position, what: str) -> LedgerError:
    return LedgerError(
        f"line {position.next_seq + 1} of the ledger {what}",
        hint="run: inferproof verify; restore ledger.jsonl from a copy that has your head",
    )
