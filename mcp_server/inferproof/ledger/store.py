"""The ledger on disk: append under a lock, read only what is new, survive a killed writer.

What `append` has returned is on disk and stays: a torn tail is cut off only behind it. Reading
checks order and digests; signatures, evidence and the expected head are checked by `verify`.
"""

import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Self

from inferproof.core.canonical import Json
from inferproof.core.errors import LedgerError
from inferproof.core.values import Digest, Entry, utc_now
from inferproof.ledger.bodies import Repair, dump, parse_body
from inferproof.ledger.chain import entry_bytes, make_entry
from inferproof.ledger.index import Index, Slot, load
from inferproof.ledger.lock import exclusive
from inferproof.ledger.objects import ObjectStore, sync_folder
from inferproof.ledger.signing import KeeperKey, verifier
from inferproof.ledger.tail import is_complete

ENTRY_LIMIT_BYTES = 256 * 1024


class Ledger:
    """The record of one campaign. Safe to share between threads and server processes."""

    def __init__(
        self, state_dir: Path, *, clock: Callable[[], datetime], lock_timeout_s: float
    ) -> None:
        self.state_dir = state_dir
        self.path = state_dir / "ledger.jsonl"
        self.objects = ObjectStore(state_dir / "objects")
        self._clock = clock
        self._lock_timeout_s = lock_timeout_s
        self._mutex = threading.RLock()
        self._key: KeeperKey | None = None
        self._index = Index()

    @classmethod
    def open(
        cls,
        state_dir: Path,
        *,
        clock: Callable[[], datetime] = utc_now,
        lock_timeout_s: float = 10.0,
    ) -> Self:
        """Return the ledger in `state_dir`; nothing is read before it is asked for.

        Raises:
            LedgerError: there is no such folder.
        """
        if not state_dir.is_dir():
            raise LedgerError(
                f"there is no campaign state in {state_dir}", hint="run: inferproof init"
            )
        return cls(state_dir, clock=clock, lock_timeout_s=lock_timeout_s)

    @property
    def head(self) -> Digest:
        """The digest of the newest entry, or 64 zeros."""
        with self._mutex:
            self._read_new()
            return self._index.position.head

    @property
    def keeper_public_key(self) -> str:
        """The public half of the key that signs the entries."""
        with self._mutex:
            self._read_new()
            return self._signing_key().public_key

    def __len__(self) -> int:
        with self._mutex:
            self._read_new()
            return len(self._index.slots)

    def entry(self, seq: int) -> Entry:
        """Return one entry.

        Raises:
            LedgerError: there is no entry of that number.
        """
        with self._mutex:
            self._read_new()
            slots = self._index.slots
            if not 0 <= seq < len(slots):
                raise LedgerError(f"there is no entry {seq}: the ledger has {len(slots)}")
            slot = slots[seq]
        return next(self._load([slot]))

    def entries(self, kind: str | tuple[str, ...] | None = None) -> Iterator[Entry]:
        """Return the entries so far, oldest first: of one kind, of several, or all."""
        wanted = (kind,) if isinstance(kind, str) else kind
        with self._mutex:
            self._read_new()
            slots = [s for s in self._index.slots if wanted is None or s.kind in wanted]
        return self._load(slots)

    def outcome_of(self, job_id: str) -> Entry | None:
        """Return the outcome of a job, if it has ended."""
        with self._mutex:
            self._read_new()
            seq = self._index.outcome_seq(job_id)
        return None if seq is None else self.entry(seq)

    def append(self, body: Mapping[str, Json]) -> Entry:
        """Return the new entry, which is then on disk.

        Raises:
            LedgerError: the body has no known form, or the ledger is locked, damaged or not ours.
        """
        return self.append_from(lambda _: body)

    def append_from(self, make: Callable[["Ledger"], Mapping[str, Json]]) -> Entry:
        """Append what `make` returns, or nothing when it raises, while nobody else can append.

        `make` sees the ledger as it is under the lock, and must not append itself.
        """
        with self._writing():
            return self._write(make(self))

    def append_if(self, make: Callable[["Ledger"], Mapping[str, Json] | None]) -> Entry | None:
        """Like `append_from`, but append nothing when `make` returns None."""
        with self._writing():
            body = make(self)
            return None if body is None else self._write(body)

    def append_outcome_once(self, job_id: str, body: Mapping[str, Json]) -> Entry:
        """Return the one outcome of a job: the entry that was there, else a new one.

        Raises:
            LedgerError: the body is not an outcome of this job.
        """
        if (body.get("kind"), body.get("job_id")) != ("outcome", job_id):
            raise LedgerError(f"the body is not the outcome of job {job_id}")
        with self._writing():
            return self.outcome_of(job_id) or self._write(body)

    @contextmanager
    def _writing(self) -> Generator[None]:
        lock = exclusive(self.state_dir / "ledger.lock", timeout_s=self._lock_timeout_s)
        with self._mutex, lock:
            torn = self._read_new()
            if torn:
                self._repair(torn)
            yield

    def _read_new(self) -> bytes:
        """Take in the lines written since the last look; return the torn tail behind them."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            self._replace_index(Index())
            return b""
        except OSError as exc:
            raise LedgerError(f"{self.path} cannot be read: {exc.strerror}") from exc
        with file:
            status = os.fstat(file.fileno())
            known = self._index
            if known.inode == status.st_ino and known.position.offset_bytes <= status.st_size:
                return known.read(file)
            fresh = Index(status.st_ino)
            torn = fresh.read(file)
            self._replace_index(fresh)
            return torn

    def _replace_index(self, fresh: Index) -> None:
        if not fresh.continues(self._index):
            raise LedgerError(
                f"{self.path} no longer holds entry {len(self._index.slots) - 1}, "
                f"digest {self._index.position.head}",
                hint="restore ledger.jsonl from a copy that has this digest",
            )
        self._index = fresh

    def _load(self, slots: Sequence[Slot]) -> Iterator[Entry]:
        if slots:
            with self.path.open("rb") as file:
                yield from load(file, slots)

    def _repair(self, torn: bytes) -> None:
        """Finish a line that lacks only its newline; keep anything else aside and say so.

        The torn bytes are overwritten by the entry that records them, so a writer that dies
        in here leaves another torn tail and no gap in the record.
        """
        if is_complete(torn):
            self._put(torn + b"\n")
            self._read_new()
            return
        digest = self.objects.put_bytes(torn)
        self._write(dump(Repair(torn_bytes=len(torn), digest_of_torn_tail=digest)))

    def _write(self, body: Mapping[str, Json]) -> Entry:
        parse_body(body)
        entry = make_entry(
            prev=self._index.position.head,
            seq=self._index.position.next_seq,
            at=self._clock(),
            body=body,
            sign=self._signing_key().sign,
        )
        line = entry_bytes(entry)
        if len(line) > ENTRY_LIMIT_BYTES:
            raise LedgerError(
                f"the entry has {len(line)} bytes, more than {ENTRY_LIMIT_BYTES}",
                hint="store what is large as an object and name its digest",
            )
        self._put(line)
        self._index.add(entry, len(line))
        return entry

    def _put(self, line: bytes) -> None:
        """Make `line` the last of the file, on disk; on failure leave the file as it was."""
        offset = self._index.position.offset_bytes
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as exc:
            raise self._unwritable(exc) from exc
        try:
            _write_at(descriptor, line, offset)
            if self._index.inode is None:
                sync_folder(self.state_dir)
                self._index.inode = os.fstat(descriptor).st_ino
        except OSError as exc:
            os.ftruncate(descriptor, offset)
            raise self._unwritable(exc) from exc
        finally:
            os.close(descriptor)

    def _unwritable(self, exc: OSError) -> LedgerError:
        what = f"{self.path} cannot be written: {exc.strerror}"
        return LedgerError(what, hint="make room or restore its permissions, then call again")

    def _signing_key(self) -> KeeperKey:
        if self._key is None:
            path = self.state_dir / "keeper.key"
            if not self._index.slots:
                self._key = KeeperKey.load_or_create(path)
                return self._key
            key = KeeperKey.load(path)
            last = self.entry(len(self._index.slots) - 1)
            if not verifier(key.public_key)(bytes.fromhex(last.digest), last.sig):
                raise LedgerError(
                    f"entry {last.seq} is not signed by {path}",
                    hint="restore keeper.key, or run: inferproof verify",
                )
            self._key = key
        return self._key


def _write_at(descriptor: int, line: bytes, offset: int) -> None:
    written = 0
    while written < len(line):
        written += os.pwrite(descriptor, line[written:], offset + written)
    os.ftruncate(descriptor, offset + len(line))
    os.fsync(descriptor)
