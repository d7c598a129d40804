"""The pipes between grader and runner, and how a candidate's end is told apart by cause."""

import contextlib
import json
import os
import secrets
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import resources

from inferproof_remote.incidents import BenchError
from inferproof_remote.sandbox import Sandbox
from inferproof_remote.tail import Tail

NONCE_BYTES = 8
_TICK_S = 0.02
_REAP_S = 10.0
_LOG_BYTES = 16 * 1024
_WORDS = 1000


class Ended(Exception):
    """The candidate can make no further call; `code` says why."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Line:
    """A running runner: commands go out, nonces come back, everything else is noise."""

    def __init__(self, sandbox: Sandbox, spec: Mapping[str, object], *, arena_fd: int) -> None:
        self._sandbox = sandbox
        self.ready = secrets.token_bytes(NONCE_BYTES)
        command_out, self._command = os.pipe()
        self._answer, answer_in = os.pipe()
        self._info, info_in = os.pipe()
        log, log_in = os.pipe()
        theirs = (command_out, answer_in, info_in)
        whole = {
            **spec,
            "ready": self.ready.hex(),
            "command_fd": command_out,
            "answer_fd": answer_in,
            "info_fd": info_in,
            "arena_fd": arena_fd,
        }
        argv = [sys.executable, "-I", "-B", "-c", _runner_source(), json.dumps(whole)]
        try:
            self._process = sandbox.spawn(argv, stdout=log_in, pass_fds=(*theirs, arena_fd))
        finally:
            for fd in (*theirs, log_in):
                os.close(fd)
        self._log = Tail(log, limit_bytes=_LOG_BYTES)
        self._handle = os.pidfd_open(self._process.pid)
        for fd in (self._command, self._answer, self._info):
            os.set_blocking(fd, False)
        self._poll = select.poll()
        for fd in (self._answer, self._handle, self._log.fd):
            self._poll.register(fd, select.POLLIN)

    def close(self) -> None:
        """Let go of every pipe."""
        for fd in (self._command, self._answer, self._info, self._handle):
            os.close(fd)
        self._log.close()

    def send(self, letter: bytes, message: Mapping[str, object] | None = None) -> bytes:
        """Write a command; return the nonce that will answer it."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        text = b"" if message is None else json.dumps(message).encode()
        size = b"" if message is None else struct.pack("=I", len(text))
        try:
            os.write(self._command, letter + nonce + size + text)
        except BlockingIOError as error:
            raise Ended("protocol_forged", "filled the pipe that it is called by") from error
        except BrokenPipeError:
            self.wait(nonce, _REAP_S)
        return nonce

    def wait(self, nonce: bytes, timeout_s: float, *, awake: bool = False) -> None:
        """Return when `nonce` comes back.

        An `awake` wait uses its core: a sleeper's processor may be given away meanwhile, and the
        way back would count as the candidate's time.

        Raises:
            Ended: it died, overran a limit or its time, or answered something else.
        """
        deadline = time.perf_counter() + timeout_s
        heard = b""
        while heard != nonce:
            ready = self._watch() if awake else self._sleep()
            if self._answer in ready:
                heard += self._hear()
            if not nonce.startswith(heard):
                raise Ended("protocol_forged", "answered a call that was not yet made")
            if heard != nonce:
                self._look_after(ready, deadline)

    def _sleep(self) -> set[int]:
        return {fd for fd, _ in self._poll.poll(_TICK_S * 1000)}

    def _watch(self) -> set[int]:
        until = time.perf_counter() + _TICK_S
        while time.perf_counter() < until:
            ready = {fd for fd, _ in self._poll.poll(0)}
            if ready:
                return ready
        return set()

    def stray(self) -> bool:
        """Whether anything more than the one answer was written."""
        return bool(self._read(self._answer))

    def has_ended(self) -> bool:
        """Whether the sandbox is over."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(0))

    def _hear(self) -> bytes:
        said = self._read(self._answer)
        if said == b"":
            self._poll.unregister(self._answer)
        return said

    def _look_after(self, ready: set[int], deadline: float) -> None:
        if self._log.fd in ready:
            self._log.drain()
            if self._log.at_end:
                self._poll.unregister(self._log.fd)
        if self._handle in ready:
            raise self._death()
        over = self._sandbox.overuse()
        if over is not None:
            raise Ended(over.code, over.detail)
        if time.perf_counter() > deadline:
            raise Ended("timed_out", "did not answer in the time it was given")

    def _death(self) -> Ended:
        """Say what ended it: a limit, a signal, or its own exit."""
        over = self._sandbox.overuse()
        if over is not None:
            return Ended(over.code, over.detail)
        try:
            code = self._process.wait(timeout=_REAP_S)
        except subprocess.TimeoutExpired as error:
            raise BenchError("an ended process cannot be waited for") from error
        words = self._read(self._info).decode(errors="replace")[:_WORDS]
        said = "".join(mark if mark.isprintable() else " " for mark in words)
        number = code - 128 if code > 128 else -code
        with contextlib.suppress(ValueError):
            if number > 0:
                return Ended("crashed", f"killed by {signal.Signals(number).name}")
        return Ended("crashed", f"exited with code {code}{f', saying: {said}' if said else ''}")

    def _read(self, fd: int) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(fd, 1 << 12)
        return b""


def _runner_source() -> str:
    return resources.files("inferproof_remote").joinpath("runner.py").read_text(encoding="utf-8")
