"""What a process remembers of a ledger file: where each entry lies, and how each job ended."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader

from inferproof.core.errors import LedgerError
from inferproof.core.values import Digest, Entry
from inferproof.ledger.bodies import kind_of
from inferproof.ledger.chain import GENESIS, parse_line
from inferproof.ledger.tail import Position, read_forward

_START = Position(offset_bytes=0, next_seq=0, head=GENESIS)


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry's place in the file."""

    offset_bytes: int
    size_bytes: int
    kind: str
    digest: Digest


class Index:
    """Grows with the file `inode`; never shrinks. Bodies stay on disk."""

    def __init__(self, inode: int | None = None) -> None:
        self.inode = inode
        self.position = _START
        self.slots: list[Slot] = []
        self._outcomes: dict[str, int] = {}

    def read(self, file: BufferedReader) -> bytes:
        """Take in the entries behind the known ones; return the torn tail that follows.

        Raises:
            LedgerError: a line is damaged.
        """
        for step in read_forward(file, self.position):
            if step.entry is None:
                return step.torn
            self.add(step.entry, step.size_bytes)
        return b""

    def add(self, entry: Entry, size_bytes: int) -> None:
        """Take in the entry that follows the known ones."""
        kind = kind_of(entry)
        self.slots.append(Slot(self.position.offset_bytes, size_bytes, kind, entry.digest))
        if kind == "outcome":
            self._outcomes.setdefault(str(entry.body.get("job_id")), entry.seq)
        self.position = self.position.after(entry, size_bytes)

    def outcome_seq(self, job_id: str) -> int | None:
        """Return which entry is the outcome of a job."""
        return self._outcomes.get(job_id)

    def continues(self, older: "Index") -> bool:
        """Return whether all that `older` knew is still there."""
        known = len(older.slots)
        return known == 0 or (
            known <= len(self.slots) and self.slots[known - 1].digest == older.position.head
        )


def load(file: BufferedReader, slots: Iterable[Slot]) -> Iterator[Entry]:
    """Yield the entries that lie at `slots`.

    Raises:
        LedgerError: other bytes lie there now.
    """
    for slot in slots:
        file.seek(slot.offset_bytes)
        entry = parse_line(file.read(slot.size_bytes))
        if entry.digest != slot.digest:
            raise LedgerError(
                f"entry {entry.seq} changed under a running server", hint="run: inferproof verify"
            )
        yield entry
