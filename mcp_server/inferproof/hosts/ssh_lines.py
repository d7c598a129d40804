"""Lines to the door of a machine's work folder, several at once over as few connections as can be.

A line is a channel to one small program of ours that answers questions; it is put there, once for
each version, by a few lines of Python that the machine's own Python reads from the channel. What
reaches the login shell is one constant command.
"""

import contextlib
import json
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import paramiko
from pydantic import BaseModel, ConfigDict, ValidationError

from inferproof.core.canonical import Json
from inferproof.core.errors import InferproofError, InfrastructureError, Unreachable
from inferproof.core.harmless import harmless
from inferproof.hosts.bundle import Bundle, boot_source
from inferproof.hosts.folders import Answer, refusal
from inferproof.hosts.ssh_link import Link

CHANNELS = 8
_BOOT_S = 60.0
_PATIENCE_S = 20.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 4.0
_BLOCK_BYTES = 1 << 18
_MOST_NOISE_BYTES = 64 << 10
_LONGEST_LINE_BYTES = 32 << 20
_MOST_BYTES = 80 << 20
READY = "inferproof-bench-ready"
Told = TypeVar("Told", bound=BaseModel)
_COMMAND = "import sys;exec(sys.stdin.buffer.read(int(sys.argv[1])))"


class _Refusal(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    code: str
    what: str
    hint: str


class _Head(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    size: int
    body: dict[str, object] = {}
    refused: _Refusal | None = None


class _Booted(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    state: Literal["ready", "send", "refused"]
    what: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where on the machine work is done, and by which Python."""

    python: str
    work: str
    bundle: Bundle


class Line:
    """One channel to the door, for one question at a time."""

    def __init__(self, channel: paramiko.Channel, link: Link) -> None:
        self._channel = channel
        self._buffer = b""
        self.link = link

    def ask(
        self, asked: str, fields: Mapping[str, Json], payload: bytes, *, timeout_s: float
    ) -> Answer:
        """Return the answer to one question; after an error of the line it is of no more use.

        Raises:
            Unreachable: the line broke, or no answer came in time.
        """
        head = {"asked": asked, "fields": fields, "size": len(payload)}
        text = json.dumps(head, allow_nan=False).encode() + b"\n"
        with self._told(asked, timeout_s):
            self._channel.sendall(text + payload if payload else text)
            found = _parsed(_Head, self._line(_LONGEST_LINE_BYTES))
            if not 0 <= found.size <= _MOST_BYTES:
                raise Unreachable(f"an answer of {found.size} bytes is not one of ours")
            data = self._bytes(found.size)
        if found.refused is not None:
            raise refusal(found.refused.code, found.refused.what, found.refused.hint)
        return Answer(found.body, data)

    def boot(self, place: Place) -> None:
        """Bring our program to the machine unless it is there, and start it at this line's end.

        Raises:
            InfrastructureError: the machine cannot run it; the message says what it lacks.
        """
        word = secrets.token_hex(16)
        settings = {"word": word, "work": place.work, "digest": place.bundle.digest}
        with self._told("boot", _BOOT_S):
            self._channel.sendall(boot_source() + json.dumps(settings).encode() + b"\n")
            told = self._booted(word)
            if told.state == "send":
                data = place.bundle.data
                self._channel.sendall(f"{len(data)}\n".encode() + data)
                told = self._booted(word)
            if told.state == "refused":
                raise InfrastructureError(harmless(told.what), hint=harmless(told.hint))
            if self._line(_MOST_NOISE_BYTES).strip() != READY.encode():
                raise Unreachable("the bench's program did not start")

    def close(self) -> None:
        """Let the program at the other end come to its end."""
        self._channel.close()

    def _booted(self, word: str) -> _Booted:
        """Return what the first lines of ours say, after whatever the login shell had to say."""
        heard = 0
        while heard < _MOST_NOISE_BYTES:
            line = self._line(_MOST_NOISE_BYTES)
            heard += len(line)
            _, found, told = line.partition(word.encode())
            if found:
                return _parsed(_Booted, told)
        raise Unreachable("the login shell on the machine says too much")

    @contextlib.contextmanager
    def _told(self, asked: str, timeout_s: float) -> Generator[None]:
        """Turn what can go wrong with a channel within the block into what it means."""
        self._channel.settimeout(timeout_s)
        try:
            yield
        except TimeoutError as error:
            self.link.close()
            raise Unreachable(f"no answer to {asked!r} within {timeout_s:g} s") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise Unreachable(f"the line broke during {asked!r}: {error}") from error

    def _line(self, limit_bytes: int) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > limit_bytes:
                raise Unreachable("an endless line is no answer of ours")
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _bytes(self, size: int) -> bytes:
        pieces, wanted = [self._buffer[:size]], size - len(self._buffer[:size])
        self._buffer = self._buffer[size:]
        while wanted > 0:
            piece = self._channel.recv(min(_BLOCK_BYTES, wanted))
            if not piece:
                raise Unreachable(self._last_words())
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces)

    def _more(self) -> None:
        piece = self._channel.recv(_BLOCK_BYTES)
        if not piece:
            raise Unreachable(self._last_words())
        self._buffer += piece

    def _last_words(self) -> str:
        said = b""
        if self._channel.recv_stderr_ready():
            said = self._channel.recv_stderr(2000)
        words = harmless(" ".join(said.decode(errors="replace").split()))[-300:]
        return f"the far end closed the line: {words}" if words else "the far end closed the line"


class Lines:
    """The door of one machine: asks over a free line, and again over a new one if it breaks."""

    def __init__(self, connect: Callable[[], Link], place: Place) -> None:
        self._connect = connect
        self._place = place
        self._guard = threading.Lock()
        self._connecting = threading.Lock()
        self._free: list[Line] = []
        self._used: dict[Link, int] = {}
        self._blocked_until = 0.0
        self._blocked_by: Unreachable | None = None

    def ask(
        self, asked: str, fields: Mapping[str, Json], payload: bytes = b"", *, timeout_s: float
    ) -> Answer:
        """Return the answer to one question; every question may be asked twice.

        Raises:
            NotFound, UsageError, InfrastructureError: the door says so.
            Unreachable: for a while nobody answered.
        """
        blocked = self._blocked_by
        if blocked is not None and time.monotonic() < self._blocked_until:
            raise Unreachable(blocked.what, hint=blocked.hint)
        deadline, pause_s = time.monotonic() + _PATIENCE_S, _FIRST_PAUSE_S
        while True:
            try:
                return self._asked(asked, fields, payload, timeout_s)
            except Unreachable as error:
                if time.monotonic() + pause_s > deadline:
                    self._block(error)
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close every connection."""
        with self._guard:
            links, self._free = list(self._used), []
            self._used.clear()
        for link in links:
            link.close()

    def _asked(
        self, asked: str, fields: Mapping[str, Json], payload: bytes, timeout_s: float
    ) -> Answer:
        line = self._take()
        try:
            answer = line.ask(asked, fields, payload, timeout_s=timeout_s)
        except Unreachable:
            self._drop(line)
            raise
        except InferproofError:
            self._give(line)
            raise
        self._give(line)
        return answer

    def _take(self) -> Line:
        """Return a line that is free, or a new one."""
        with self._guard:
            while self._free:
                line = self._free.pop()
                if line.link.is_open:
                    return line
                self._count_down(line.link)
        link = self._link()
        try:
            command = shlex.join(
                [self._place.python, "-I", "-c", _COMMAND, str(len(boot_source()))]
            )
            line = Line(link.channel(command), link)
        except paramiko.ChannelException as error:
            self._fill(link)
            raise Unreachable(f"the machine allows no further channel: {error}") from error
        except InferproofError:
            self._leave(link)
            raise
        try:
            line.boot(self._place)
        except InferproofError:
            self._drop(line)
            raise
        return line

    def _link(self) -> Link:
        """Return a connection with room for one more channel, which is counted as taken."""
        with self._connecting:
            with self._guard:
                for link, channels in self._used.items():
                    if link.is_open and channels < CHANNELS:
                        self._used[link] += 1
                        return link
            made = self._connect()
            with self._guard:
                self._used[made] = 1
                self._blocked_by = None
            return made

    def _give(self, line: Line) -> None:
        with self._guard:
            self._free.append(line)

    def _drop(self, line: Line) -> None:
        line.close()
        self._leave(line.link)

    def _fill(self, link: Link) -> None:
        with self._guard:
            self._used[link] = CHANNELS

    def _leave(self, link: Link) -> None:
        with self._guard:
            self._count_down(link)

    def _count_down(self, link: Link) -> None:
        if link.is_open:
            self._used[link] = max(0, self._used.get(link, 0) - 1)
        else:
            self._used.pop(link, None)

    def _block(self, error: Unreachable) -> None:
        """Fail at once for a little while: whoever asks about ten jobs shall not wait ten times."""
        with self._guard:
            self._blocked_by = error
            self._blocked_until = time.monotonic() + _LONGEST_PAUSE_S


def _parsed(model: type[Told], data: bytes) -> Told:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise Unreachable("what came over the line is no answer of ours") from error
