"""One replica: an engine in a sandbox of its own, watched, reached through one socket."""

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path, PurePosixPath

from inferproof_remote import job
from inferproof_remote.incidents import Incident
from inferproof_remote.mounts import SandboxPlan, gpu_devices, leased_environment
from inferproof_remote.sandbox import Sandbox
from inferproof_remote.serving.plans import (
    Place,
    Plan,
    engine_port,
    filled,
    own_code,
    placeholders,
)
from inferproof_remote.serving.usage import Usage
from inferproof_remote.tail import Tail

_SOCKET = "replica.sock"
_LOG_BYTES = 16 * 1024
_LOOK_S, _PROBE_S, _FIRST_PROBE_S = 0.25, 1.0, 0.05
_TOLD_LINES, _TOLD_CHARACTERS = 3, 400
_BY_SIGNAL = 128
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_WAIT_POLICY": "passive",
}
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Replica:
    """A running engine. It is known by the socket that only its own sandbox can have made."""

    def __init__(self, plan: Plan, place: Place, *, label: str, cores: Sequence[int]) -> None:
        self.label = label
        self.incidents: list[Incident] = []
        self.last_answer = "no answer"
        self._plan = plan
        self._place = replace(place, threads=min(place.threads, len(cores)))
        self._cores = cores
        self.usage: Usage | None = None
        self._nonce = secrets.token_hex(8)
        self._folder = place.work / f"{label}-{self._nonce}"
        self._stack = contextlib.ExitStack()
        self._over = threading.Event()
        self._stopping = threading.Event()
        self._socket: Path | None = None
        self._socket_fd = -1
        self._answers = False

    def start(self) -> None:
        """Start the engine and those who watch it; whether it serves, `is_healthy` says later.

        The sandbox dies with the thread that calls this.
        """
        self._folder.mkdir(parents=True)
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        name = job.sandbox_name(f"{self.label}-{self._nonce}")
        box = self._stack.enter_context(Sandbox(self._sandbox_plan(), name=name))
        reader, writer = os.pipe()
        self._tail = Tail(reader, limit_bytes=_LOG_BYTES)
        self._stack.callback(self._tail.close)
        try:
            cwd = PurePosixPath(self._folder)
            process = box.spawn(self._command(box), stdout=writer, cwd=cwd)
        finally:
            os.close(writer)
        self._box, self._process, self.usage = box, process, Usage(box, self._cores)
        self._stack.callback(self._let_go)
        self._watch(self._probe)
        self._stack.callback(box.kill)
        self._watch(self._follow)
        self._stack.callback(self._stopping.set)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self._over.is_set()

    @property
    def is_healthy(self) -> bool:
        """Whether it answered its health path with 200 when it was last asked."""
        return self._answers and not self.is_over

    @property
    def socket(self) -> Path | None:
        """How any process of ours reaches exactly this engine, once it has made its socket.

        The name goes through our handle of the socket itself, so that what the engine puts in its
        place later leads nowhere, and so that it is short enough for an address.
        """
        return self._socket

    @property
    def log_tail(self) -> str:
        """The end of what it printed."""
        return self._tail.text.decode(errors="replace")

    def close(self) -> None:
        """End it and everything it started; safe to repeat."""
        self._stack.close()
        self._over.set()

    def _sandbox_plan(self) -> SandboxPlan:
        place, threads = self._place, str(self._place.threads)
        seen = [place.model, *([place.candidate] if place.candidate else [])]
        if self._plan.trusted:
            seen.append(own_code(place.work))
        values = placeholders(place, port=0, pyz=own_code(place.work))
        env = {name: filled(value, values) for name, value in self._plan.env.items()}
        return SandboxPlan(
            read_only=tuple(seen),
            writable=(self._folder,),
            memory_mib=int(place.limit("memory_mib")),
            tmp_mib=int(place.limit("tmp_mib")),
            processes=int(place.limit("processes")),
            devices=gpu_devices(),
            env={**_OFFLINE, **dict.fromkeys(_THREADS, threads), **env, **leased_environment()},
        )

    def _command(self, box: Sandbox) -> Sequence[str]:
        port = engine_port(own_network=box.kind.separation != "shared-account")
        values = placeholders(self._place, port=port, pyz=own_code(self._place.work))
        folder = str(self._place.candidate or self._folder)
        argv = [filled(part, values) for part in self._plan.argv]
        return [*shim_command("lend"), _SOCKET, str(port), folder, *argv]

    def _watch(self, what: Callable[[], None]) -> None:
        thread = threading.Thread(target=what, daemon=True)
        thread.start()
        self._stack.callback(thread.join)

    def _follow(self) -> None:
        """Keep the log flowing; note when the engine ends or breaks a limit."""
        looked = 0.0
        while not self._stopping.is_set():
            self._tail.wait(_LOOK_S)
            if time.monotonic() - looked < _LOOK_S:
                continue
            looked = time.monotonic()
            if self._answers and self.usage:
                self.usage.look()
            ended = self._process.poll() is not None
            over = self._box.overuse()
            if ended or over is not None:
                self._box.kill()
                self._tail.drain_all()
                self.incidents.append(over or self._crash())
                self._over.set()
                return

    def _probe(self) -> None:
        """Ask for health again and again; an engine that leaves it unanswered hangs."""
        longest_s = self._place.limit("call_s")
        while not self._stopping.wait(_PROBE_S if self._answers else _FIRST_PROBE_S):
            self._socket = self._socket or self._found_socket()
            if self._socket is None:
                continue
            try:
                answer = get_status(self._socket, self._plan.health, timeout_s=longest_s)
            except TimeoutError:
                self._note_hang(longest_s)
            except OSError as error:
                self._answers, self.last_answer = False, str(error)
            except http.client.HTTPException as error:  # it holds what the engine sent
                self._answers, self.last_answer = False, f"no HTTP ({type(error).__name__})"
            else:
                self._answers, self.last_answer = answer == http.HTTPStatus.OK, f"status {answer}"

    def _note_hang(self, longest_s: float) -> None:
        was_healthy, self._answers = self._answers, False
        self.last_answer = f"nothing within {longest_s:g} s"
        if was_healthy:
            what = f"replica {self.label} left {self._plan.health} unanswered for {longest_s:g} s"
            self.incidents.append(Incident("timed_out", None, what))

    def _crash(self) -> Incident:
        lines = [line.strip() for line in self.log_tail.splitlines() if line.strip()]
        said = " | ".join(lines[-_TOLD_LINES:])[-_TOLD_CHARACTERS:]
        how = f"replica {self.label} ended ({_how(self._process.returncode)})"
        return Incident("crashed", None, f"{how}, saying: {quoted(said)}" if said else how)

    def _found_socket(self) -> Path | None:
        """Return a name for the engine's socket; only a socket in its own folder will do."""
        try:
            handle = os.open(self._folder / _SOCKET, os.O_PATH | os.O_NOFOLLOW)
        except OSError:
            return None
        if not stat.S_ISSOCK(os.fstat(handle).st_mode):
            os.close(handle)
            return None
        self._socket_fd = handle
        return Path(f"/proc/{os.getpid()}/fd/{handle}")

    def _let_go(self) -> None:
        if self._socket_fd >= 0:
            os.close(self._socket_fd)


def shim_command(verb: str) -> list[str]:
    """Return the start of a command that runs the shim from its text, wherever that is allowed."""
    source = resources.files("inferproof_remote.serving").joinpath("shim.py").read_text("utf-8")
    return [sys.executable, "-I", "-B", "-c", source, verb]


def get_status(path: Path, target: str, *, timeout_s: float) -> int:
    """Return the status of a GET through a socket file.

    Raises:
        OSError, HTTPException: there was no answer; TimeoutError: not within `timeout_s`.
    """
    connection = http.client.HTTPConnection("replica", timeout=timeout_s)
    with contextlib.closing(connection), socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(timeout_s)
        channel.connect(str(path))
        connection.sock = channel
        connection.request("GET", target)
        return connection.getresponse().status


def quoted(text: str) -> str:
    """Return foreign text as one closed quotation, without what is not seen."""
    seen = "".join(each if each.isprintable() else " " for each in text)
    return json.dumps(seen, ensure_ascii=False)


def _how(code: int | None) -> str:
    """Say how a process ended; a shell's way to tell of a signal is read as one."""
    number = -code if code is not None and code < 0 else (code or 0) - _BY_SIGNAL
    if number in set(signal.Signals):
        return f"killed by {signal.Signals(number).name}"
    return f"exit code {code}"
