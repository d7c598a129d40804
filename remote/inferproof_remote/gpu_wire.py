"""Messages between the grader and a process that holds a device: JSON on a socket, bytes beside it.

Tensors travel in shared memory that both map; a message says where in it they lie.
"""

import ctypes
import json
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Mapping
from typing import TypeAlias

from inferproof_remote.job import as_table
from inferproof_remote.tail import Tail

Json: TypeAlias = dict[str, object]
_LENGTH = struct.Struct("=I")
_MOST_BYTES = 1 << 26
_ALIGNMENT = 256


class WireClosed(Exception):
    """The other side is gone."""


class WireSilent(Exception):
    """The other side did not answer in time."""


class Wire:
    """One end of the line; messages come whole."""

    def __init__(self, end: socket.socket, noise: Tail | None = None) -> None:
        self._end = end
        self._noise = noise

    def send(self, message: Mapping[str, object]) -> None:
        """Write one message.

        Raises:
            WireClosed: nobody listens.
        """
        text = json.dumps(message, allow_nan=False).encode()
        try:
            self._end.sendall(_LENGTH.pack(len(text)) + text)
        except OSError as error:
            raise WireClosed(str(error)) from error

    def receive(self, timeout_s: float | None = None) -> Mapping[str, object]:
        """Return the next message.

        Raises:
            WireClosed: the other side ended, or what it sends is no message.
            WireSilent: nothing came in `timeout_s`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        size: int = _LENGTH.unpack(self._exactly(_LENGTH.size, deadline))[0]
        if size > _MOST_BYTES:
            raise WireClosed(f"a message of {size} bytes")
        try:
            return as_table(json.loads(self._exactly(size, deadline)), "message")
        except ValueError as error:
            raise WireClosed(f"no JSON: {error}") from error

    def close(self) -> None:
        """Hang up."""
        self._end.close()

    def _is_ready(self, left_s: float | None) -> bool:
        """Wait for the other side; what it prints meanwhile is taken, or it would block."""
        noise = [] if self._noise is None or self._noise.at_end else [self._noise]
        ready = select.select([self._end, *(each.fd for each in noise)], [], [], left_s)[0]
        for each in noise:
            if each.fd in ready:
                each.drain()
        if not ready:
            raise WireSilent
        return self._end in ready

    def _exactly(self, count: int, deadline: float | None) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._is_ready(left):
                continue
            try:
                part = self._end.recv(min(1 << 16, count - len(parts)))
            except OSError as error:
                raise WireClosed(str(error)) from error
            if not part:
                raise WireClosed("it ended")
            parts += part
        return bytes(parts)


class SharedBytes:
    """Memory that both sides map, of a size that neither can change."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self.fd = fd
        self.size_bytes = size_bytes
        self._map = mmap.mmap(fd, size_bytes)
        self._anchor = (ctypes.c_char * size_bytes).from_buffer(self._map)
        self.address = ctypes.addressof(self._anchor)

    @classmethod
    def make(cls, size_bytes: int) -> "SharedBytes":
        """Return new shared memory."""
        fd = os.memfd_create("tensors")
        os.ftruncate(fd, size_bytes)
        return cls(fd, size_bytes)

    def view(self, offset: int, size_bytes: int) -> memoryview:
        """Return a part of it."""
        return memoryview(self._map)[offset : offset + size_bytes]


def spread(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return an offset for each of `sizes` and how many bytes they need together."""
    offsets: dict[str, int] = {}
    end = 0
    for name, size in sizes.items():
        offsets[name] = end
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return offsets, max(end, _ALIGNMENT)
