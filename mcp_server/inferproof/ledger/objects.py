"""Artefacts named by their SHA-256: what is read is what was stored, or an error."""

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from pathlib import Path

from inferproof.core.canonical import digest_bytes
from inferproof.core.errors import LedgerError
from inferproof.core.values import Digest

_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK_BYTES = 1 << 20


class ObjectStore:
    """A folder of read-only files, each named by the digest of its bytes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, digest: Digest) -> Path:
        """Return where the object lies or would lie.

        Raises:
            LedgerError: `digest` is not 64 lower-case hex digits.
        """
        if not _DIGEST.fullmatch(digest):
            raise LedgerError(f"{digest!r} is not a digest", hint="it has 64 hex digits")
        return self.root / digest[:2] / digest[2:]

    def put_bytes(self, data: bytes) -> Digest:
        """Store `data`, on disk before this returns, and return its digest."""
        digest = digest_bytes(data)
        if not self._holds(digest):
            with self._temporary() as (file, temporary):
                file.write(data)
                self._commit(file, temporary, digest)
        return digest

    def put_file(self, source: Path) -> Digest:
        """Store the bytes of a regular file, read once, and return their digest.

        Raises:
            LedgerError: the source is not a regular file (links are not followed).
        """
        with _open_regular(source) as reading, self._temporary() as (file, temporary):
            hasher = hashlib.sha256()
            while block := reading.read(_BLOCK_BYTES):
                hasher.update(block)
                file.write(block)
            digest = hasher.hexdigest()
            if not self._holds(digest):
                self._commit(file, temporary, digest)
        return digest

    def get(self, digest: Digest) -> bytes:
        """Return the bytes of an object, hashed as they were read.

        Raises:
            LedgerError: the object is missing, or its bytes have another digest.
        """
        with _open_regular(self.path(digest)) as file:
            data = file.read()
        if digest_bytes(data) != digest:
            raise _changed(digest)
        return data

    def check(self, digest: Digest) -> None:
        """Return when the object is there and unchanged, without holding it in memory.

        Raises:
            LedgerError: the object is missing, or its bytes have another digest.
        """
        if hash_file(self.path(digest)) != digest:
            raise _changed(digest)

    def _holds(self, digest: Digest) -> bool:
        try:
            self.check(digest)
        except LedgerError:
            return False
        return True

    @contextmanager
    def _temporary(self) -> Generator[tuple[BufferedWriter, Path]]:
        self.root.mkdir(parents=True, exist_ok=True)
        temporary = self.root / f".{secrets.token_hex(16)}"
        with temporary.open("xb") as file:
            try:
                yield file, temporary
            finally:
                temporary.unlink(missing_ok=True)

    def _commit(self, file: BufferedWriter, temporary: Path, digest: Digest) -> None:
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        os.fsync(file.fileno())
        place = self.path(digest)
        if not place.parent.exists():
            place.parent.mkdir(exist_ok=True)
            sync_folder(self.root)
        temporary.replace(place)
        sync_folder(place.parent)


def hash_file(path: Path) -> Digest:
    """Return the digest of a regular file's bytes.

    Raises:
        LedgerError: there is no such file, or it is a link or a device.
    """
    with _open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Return once the names in `folder` are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_regular(path: Path) -> BufferedReader:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as exc:
        raise LedgerError(f"{path} cannot be read: {exc.strerror}") from exc
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise LedgerError(f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


def _changed(digest: Digest) -> LedgerError:
    return LedgerError(
        f"object {digest} was altered: its bytes have another digest",
        hint="run: inferproof verify",
    )
