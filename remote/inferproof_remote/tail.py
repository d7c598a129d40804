"""The end of what a process prints, kept in bounded memory."""

import contextlib
import os
import select
import time

_MOST_CHUNKS = 64


class Tail:
    """Reads a pipe without ever blocking; all but the last `limit_bytes` are dropped."""

    def __init__(self, fd: int, *, limit_bytes: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.text = b""
        self.total_bytes = 0
        self.at_end = False
        self._limit_bytes = limit_bytes
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Read what comes within `seconds`."""
        if self.at_end:
            time.sleep(seconds)
        elif self._poll.poll(seconds * 1000):
            self.drain()

    def drain(self) -> None:
        """Read what is there now, but no more than one pipe's worth at a time."""
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(self.fd, 1 << 16)
            self.at_end = not chunk
            self.total_bytes += len(chunk)
            self.text = (self.text + chunk)[-self._limit_bytes :]

    def drain_all(self) -> None:
        """Read the rest, once nobody writes any more."""
        for _ in range(_MOST_CHUNKS):
            before = self.total_bytes
            self.drain()
            if self.total_bytes == before:
                return

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self.fd)
