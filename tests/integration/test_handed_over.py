"""A replica is handed the socket of its callers, and gets no folder that it could write to."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from docker import DockerClient
from docker.models.containers import Container

from inferproof.serving.deployers.replicas import SOCKET, Spot, shim
from sshd import free_port

PATIENCE_S = 20.0
ENGINE = (
    "import http.server as h, sys; h.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])),"
    " h.SimpleHTTPRequestHandler).serve_forever()"
)


class Replica:
    """A process that stands for a container."""

    name = "inferproof-engine-r0"

    def __init__(self, *argv: str, cwd: Path) -> None:
        self.process = subprocess.Popen([sys.executable, "-I", "-B", "-c", *argv], cwd=cwd)

    @property
    def status(self) -> str:
        return "running" if self.process.poll() is None else "exited"

    def reload(self) -> None:
        """Its status is always that of now."""

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def spot(tmp_path: Path) -> Spot:
    folder = tmp_path / ("x" * 120)  # longer than a socket's address
    return Spot(client=cast("DockerClient", SimpleNamespace()), folder=folder)


def test_the_shim_takes_the_socket_and_serves_its_callers_when_the_door_is_gone(spot: Spot):
    port = str(free_port("127.0.0.1"))
    with spot.lending("engine-r0") as lending:
        told = [Path(SOCKET).name, port, "/", sys.executable, "-c", ENGINE, port]
        replica = Replica(shim(), "take", *told, cwd=lending.folder)
        container = cast("Container", replica)
        taken = lending.hand_over(container, patience_s=PATIENCE_S)
    try:
        assert taken
        assert list(lending.folder.iterdir()) == []
        path = spot.path_of(container)
        while not spot.serves(path, "/"):
            assert replica.status == "running"
    finally:
        replica.end()
    assert not spot.serves(path, "/")


def test_a_replica_that_does_not_come_for_its_socket_is_given_up(spot: Spot):
    with spot.lending("engine-r0") as lending:
        replica = Replica("raise SystemExit('no shim here')", cwd=lending.folder)
        assert not lending.hand_over(cast("Container", replica), patience_s=PATIENCE_S)
    replica.end()


def test_what_somebody_who_died_left_is_no_obstacle(spot: Spot):
    for _ in range(2):
        with spot.lending("engine-r0"):
            (spot.folder / "theirs" / "engine-r0" / "folder").mkdir(exist_ok=True)
