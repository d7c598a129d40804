"""What stands in front of replicas: HAProxy, or a plain door where there is one replica."""

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from inferproof_remote.incidents import BenchError
from inferproof_remote.serving.replica import shim_command

_BACKLOG = 1024
_CONNECTIONS, _SPARE_FILES = 8192, 128
_START_S, _END_S, _ANSWER_S = 10.0, 5.0, 5.0
_DRAIN_S = 600.0
_STEP_S = 0.02
_ADMIN = "admin.sock"
_CHECKED = "check inter 500ms fall 1 rise 1 observe layer4 error-limit 1 on-error mark-down"
_CURRENT, _NAME, _PROXY = "scur", "svname", "# pxname"

_TEXT = """\
global
    nbthread 1
    maxconn {connections}
    stats socket unix@{admin} mode 600 level admin
defaults
    mode http
    timeout connect 5s
    timeout client 24h
    timeout server 24h
    timeout check {check_ms}ms
    option http-no-delay
    # Engines end idle connections when they like; a request on one that ends would be lost.
    option http-server-close
    # Only a request that no replica has seen is given to another one.
    retry-on conn-failure
    retries 2
    option redispatch 1
frontend endpoint
    bind fd@{listener_fd}
    default_backend replicas
backend replicas
    balance leastconn
    option httpchk
    http-check send meth GET uri {health} ver HTTP/1.1 hdr Host replica
    http-check expect status 200
"""


class Balancer(Protocol):
    """One endpoint for some replicas."""

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 that callers use."""
        ...

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        ...

    def add(self, name: str, path: Path) -> None:
        """Give requests to one more replica."""
        ...

    def drop(self, name: str) -> None:
        """Give a replica no more requests; return once it has answered those it has."""
        ...

    def close(self) -> None:
        """End it."""
        ...


def config_text(
    servers: Mapping[str, Path],
    *,
    health: str,
    check_s: float,
    listener_fd: int,
    connections: int,
) -> str:
    """Return HAProxy's configuration: errors of the engine reach the caller, streams flow."""
    head = _TEXT.format(
        admin=_ADMIN,
        check_ms=round(check_s * 1000),
        connections=connections,
        listener_fd=listener_fd,
        health=_quoted(health),
    )
    lines = [f"    server {name} unix@{path} {_CHECKED}\n" for name, path in servers.items()]
    return head + "".join(lines)


class HaProxy:
    """HAProxy as our child; it and its sockets are gone when we are."""

    def __init__(
        self, servers: Mapping[str, Path], *, program: Path, work: Path, health: str, check_s: float
    ) -> None:
        self._folder = os.open(work, os.O_PATH | os.O_DIRECTORY)
        self._log = work / "haproxy.log"
        # The kernel chooses a free port, and it is ours from then on: nobody can take it.
        with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
            self.port = int(listener.getsockname()[1])
            fd = listener.fileno()
            text = config_text(
                servers,
                health=health,
                check_s=check_s,
                listener_fd=fd,
                connections=_connections(),
            )
            (work / "haproxy.cfg").write_text(text, encoding="utf-8")
            command = [str(program), "-db", "-f", "haproxy.cfg"]
            self._process = _child(command, pass_fds=[fd], cwd=work, log=self._log)
        try:
            self._await_start()
        except BenchError:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def add(self, name: str, path: Path) -> None:
        """Give requests to one more replica.

        Raises:
            BenchError: this HAProxy cannot; it has to be 2.5 or later.
        """
        said = self._ask(f"add server replicas/{name} unix@{path} {_CHECKED}")
        if "registered" not in said:
            raise BenchError(f"HAProxy did not take another replica: {said.strip() or 'no word'}")
        self._ask(f"enable health replicas/{name}; enable server replicas/{name}")

    def drop(self, name: str) -> None:
        """Give a replica no more requests; return once it has answered those it has.

        Raises:
            BenchError: it still had requests after ten minutes.
        """
        self._ask(f"set server replicas/{name} state drain")
        deadline = time.monotonic() + _DRAIN_S
        while self._requests(name):
            if time.monotonic() > deadline:
                raise BenchError(f"replica {name} still has requests after {_DRAIN_S:g} s")
            time.sleep(_STEP_S)
        self._ask(f"set server replicas/{name} state maint; del server replicas/{name}")

    def close(self) -> None:
        """End it."""
        _end(self._process)
        os.close(self._folder)

    def _requests(self, name: str) -> int:
        head, *rows = (line.split(",") for line in self._ask("show stat").strip().splitlines())
        table = [dict(zip(head, row, strict=False)) for row in rows]
        ours = [row for row in table if row[_PROXY] == "replicas" and row[_NAME] == name]
        return sum(int(row[_CURRENT]) for row in ours)

    def _await_start(self) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            with contextlib.suppress(OSError):
                self._ask("show info")
                return
            if not self.is_alive or time.monotonic() > deadline:
                raise BenchError(f"HAProxy did not start: {_last_line(self._log)}")
            time.sleep(_STEP_S)

    def _ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(_ANSWER_S)
            channel.connect(f"/proc/self/fd/{self._folder}/{_ADMIN}")
            channel.sendall(f"{command}\n".encode())
            parts: list[bytes] = []
            while part := channel.recv(1 << 16):
                parts.append(part)
        return b"".join(parts).decode(errors="replace")


class Door:
    """A port that leads to one replica and to no other."""

    def __init__(self, path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG) as listener:
            self.port = int(listener.getsockname()[1])
            fd = listener.fileno()
            command = [*shim_command("door"), str(fd), str(path)]
            self._process = _child(command, pass_fds=[fd], cwd=Path("/"), log=Path(os.devnull))

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def add(self, name: str, path: Path) -> None:
        """Refuse: a door leads to one replica.

        Raises:
            BenchError: always.
        """
        raise BenchError(
            f"no balancer for {name} ({path}): HAProxy is not installed; "
            "run: apt-get install haproxy"
        )

    def drop(self, name: str) -> None:
        """Refuse: without its one replica a door leads nowhere.

        Raises:
            BenchError: always.
        """
        raise BenchError(f"{name} is the only replica; cancel the job to end it")

    def close(self) -> None:
        """End it."""
        _end(self._process)


def _connections() -> int:
    """Return how many connections HAProxy may hold; each takes two of the files we may open."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most_files == resource.RLIM_INFINITY:
        return _CONNECTIONS
    return min(_CONNECTIONS, max(1, (most_files - _SPARE_FILES) // 2))


def find_haproxy() -> Path | None:
    """Return this machine's HAProxy, if there is one; distributions keep it out of users' PATH."""
    found = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    return None if found is None else Path(found)


def _child(
    command: Sequence[str], *, pass_fds: Sequence[int], cwd: Path, log: Path
) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when the thread that calls this ends."""
    with log.open("ab") as stream:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            pass_fds=pass_fds,
            cwd=cwd,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _quoted(text: str) -> str:
    """Return `text` as one word of HAProxy's language."""
    return "'" + text.replace("'", "'\\''") + "'"
