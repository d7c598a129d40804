"""Files named by their SHA-256: what is here is never sent again, and is used only if unaltered."""

import contextlib
import hashlib
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

_DIGEST = re.compile(r"^[0-9a-f]{64}$")
_PARTIAL = ".part"


class BlobError(ValueError):
    """A blob is not what its name says, or a piece of it does not fit."""


@dataclass(frozen=True, slots=True)
class Blobs:
    """A folder of files by digest, and of beginnings of files that are still on their way."""

    root: Path

    def held_bytes(self, digest: str) -> int | None:
        """Return None if the blob is here whole, else how much of it is."""
        place = self._place(digest)
        try:
            os.utime(place)
        except OSError:
            partial = place.with_suffix(_PARTIAL)
            return partial.stat().st_size if partial.is_file() else 0
        return None

    def put(self, digest: str, data: bytes) -> None:
        """Store a whole blob.

        Raises:
            BlobError: `data` has another digest.
        """
        if hashlib.sha256(data).hexdigest() != digest:
            raise BlobError(f"a file that should be {digest} arrived as another")
        place = self._place(digest)
        draft = place.with_name(f".{secrets.token_hex(8)}")
        try:
            draft.write_bytes(data)
        except FileNotFoundError:
            self.root.mkdir(parents=True, exist_ok=True)
            draft.write_bytes(data)
        draft.replace(place)

    def add(self, digest: str, data: bytes, *, offset_bytes: int, size_bytes: int) -> None:
        """Store one piece of a big blob; after the last one it is checked as a whole.

        Raises:
            BlobError: the piece does not follow what is here, or the whole has another digest.
        """
        place = self._place(digest)
        self.root.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(_PARTIAL)
        with partial.open("ab") as stream:
            if stream.tell() != offset_bytes or offset_bytes + len(data) > size_bytes:
                raise BlobError(f"{stream.tell()} bytes of {digest} are here, not {offset_bytes}")
            stream.write(data)
        if offset_bytes + len(data) == size_bytes:
            if file_digest(partial) != digest:
                partial.unlink()
                raise BlobError(f"a file that should be {digest} arrived as another")
            partial.replace(place)

    def get(self, digest: str) -> bytes | None:
        """Return a blob's bytes; None, and none here any more, if they are not what it names."""
        place = self._place(digest)
        try:
            data = place.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(data).hexdigest() == digest:
            return data
        place.unlink(missing_ok=True)
        return None

    def forget(self, *, unused_s: float) -> None:
        """Remove what nobody asked for in the last `unused_s` seconds."""
        before = time.time() - unused_s
        for path in self.root.glob("*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before:
                    path.unlink()

    def _place(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise BlobError(f"{digest[:80]!r} is not a digest")
        return self.root / digest


def file_digest(path: Path) -> str | None:
    """Return the SHA-256 of a file; None if it cannot be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
