"""One writer at a time, across threads and processes, with a deadline and a name to blame."""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from inferproof.core.errors import LedgerError

_RETRY_S = 0.002


@contextmanager
def exclusive(path: Path, *, timeout_s: float) -> Generator[None]:
    """Hold the lock file at `path`; the kernel frees it when its holder dies.

    Raises:
        LedgerError: somebody else held it until the deadline, or it cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as exc:
        raise LedgerError(f"{path} cannot be opened: {exc.strerror}") from exc
    try:
        _acquire(descriptor, path, timeout_s)
        with suppress(OSError):  # the name of the holder is a courtesy; a full disk is no reason
            os.pwrite(descriptor, b"%-20d\n" % os.getpid(), 0)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
                raise LedgerError(
                    f"{path} was held for {timeout_s:g} s by process {holder}",
                    hint="wait for that process or end it, then call again",
                ) from None
            time.sleep(_RETRY_S)
        else:
            return
