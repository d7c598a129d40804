"""HAProxy in front of replicas, each a socket file; it outlives us and is found again."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from inferproof.core.errors import InfrastructureError

_STEP_S, _ANSWER_S, _START_S = 0.02, 5.0, 10.0
_CHECKED = "check inter 500ms fall 1 rise 1 observe layer4 error-limit 1 on-error mark-down"
_TEXT = """\
global
    nbthread 1
    maxconn 8192
    stats socket unix@admin.sock mode 600 level admin
    pidfile haproxy.pid
defaults
    mode http
    timeout connect 5s
    timeout client 24h
    timeout server 24h
    timeout check {check_ms}ms
    option http-no-delay
    option http-server-close
    # A request whose replica died before the first byte of its answer is given to one other, and
    # to no third: what it was that killed the first may kill the second.
    retry-on conn-failure empty-response
    retries 1
    option redispatch 1
frontend endpoint
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance leastconn
    option httpchk
    http-check send meth GET uri {health} ver HTTP/1.1 hdr Host replica
    http-check expect status 200
"""


def config_text(servers: Mapping[str, Path], *, port: int, health: str, check_s: float) -> str:
    """Return HAProxy's configuration: errors of the engine reach the caller, streams flow."""
    head = _TEXT.format(
        check_ms=round(check_s * 1000),
        port=port,
        health="'" + health.replace("'", "'\\''") + "'",
    )
    return head + "".join(
        f"    server {name} unix@{path} {_CHECKED}\n" for name, path in servers.items()
    )


class Balancer:
    """The one HAProxy of a deployment, in a folder of its own."""

    def __init__(self, folder: Path, *, program: str) -> None:
        self._folder = folder
        self._program = program

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 that callers use; 0 if it never ran."""
        try:
            return int((self._folder / "port").read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0

    def is_alive(self) -> bool:
        """Whether it answers."""
        try:
            return bool(self._ask("show info"))
        except OSError:
            return False

    def start(self, servers: Mapping[str, Path], *, health: str, check_s: float) -> None:
        """Start it, at the port where callers know it, if it does not run.

        Raises:
            InfrastructureError: it does not start.
        """
        if self.is_alive():
            return
        port = self.port or _free_port()
        text = config_text(servers, port=port, health=health, check_s=check_s)
        config = self._folder / "haproxy.cfg"
        config.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [self._program, "-D", "-f", config.name],
            cwd=self._folder,  # sockets are named from here: an address has 107 bytes at most
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_START_S,
            check=False,
        )
        if done.returncode != 0:
            raise InfrastructureError(
                f"HAProxy did not start: {done.stderr.strip()[-500:]}",
                hint=f"is port {port} free? is haproxy 2.5 or later installed?",
            )
        _until(self.is_alive, "HAProxy did not answer")
        (self._folder / "port").write_text(str(port), encoding="ascii")

    def add(self, name: str, path: Path) -> None:
        """Give requests to one more replica, if it does not do so yet."""
        if name in self._servers():
            return
        said = self._ask(f"add server replicas/{name} unix@{path} {_CHECKED}")
        if "registered" not in said:
            raise InfrastructureError(f"HAProxy took no further replica: {said.strip()}")
        self._ask(f"enable health replicas/{name}; enable server replicas/{name}")
        _until(lambda: self._servers()[name]["status"].startswith("UP"), f"{name} is not up")

    def drop(self, name: str, *, drain_s: float) -> None:
        """Give a replica no more requests; return once it has answered those it has, or in time."""
        if name not in self._servers():
            return
        self._ask(f"set server replicas/{name} state drain")
        with contextlib.suppress(InfrastructureError):  # its time is up: it ends with the rest
            _until(lambda: self._servers()[name]["scur"] == "0", "busy", within_s=drain_s)
        self._ask(f"set server replicas/{name} state maint; del server replicas/{name}")

    def names(self) -> frozenset[str]:
        """Return the replicas that it knows."""
        return frozenset(self._servers())

    def stop(self) -> None:
        """End it."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ConnectionError):
            self._ask("show info")  # who answers here is the one whose pid was written
            os.kill(int((self._folder / "haproxy.pid").read_text(encoding="ascii").split()[0]), 15)
            _until(lambda: not self.is_alive(), "HAProxy does not end")

    def _servers(self) -> dict[str, dict[str, str]]:
        text = self._ask("show stat").strip()
        head, *rows = (line.split(",") for line in text.splitlines())
        table = [dict(zip(head, row, strict=False)) for row in rows]
        own = [row for row in table if row["# pxname"] == "replicas"]
        return {row["svname"]: row for row in own if row["svname"] != "BACKEND"}

    def _ask(self, command: str) -> str:
        folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as channel:
                channel.settimeout(_ANSWER_S)
                channel.connect(f"/proc/self/fd/{folder}/admin.sock")
                channel.sendall(f"{command}\n".encode())
                parts: list[bytes] = []
                while part := channel.recv(1 << 16):
                    parts.append(part)
        finally:
            os.close(folder)
        return b"".join(parts).decode(errors="replace")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _until(seen: Callable[[], object], what: str, *, within_s: float = _START_S) -> None:
    deadline = time.monotonic() + within_s
    while not seen():
        if time.monotonic() > deadline:
            raise InfrastructureError(f"{what} within {within_s:g} s", hint="look at haproxy.cfg")
        time.sleep(_STEP_S)
