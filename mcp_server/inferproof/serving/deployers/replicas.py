"""Replicas as containers without a network: the flags of their sandbox, and how they are reached.

The only way in is a socket that we made, in a folder that the replica does not see. It is handed to
the replica through a second one, before its engine is started. So no folder of this machine can be
written to from inside, and nothing that the replica does can lead requests elsewhere.
"""

import os
import shutil
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from importlib import resources
from pathlib import Path
from socket import AF_UNIX, send_fds, socket
from typing import Any, Literal, cast

from docker import DockerClient
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from docker.types import LogConfig, Ulimit

from inferproof.core.errors import InfrastructureError
from inferproof.serving.deployers.base import ENGINE_PORT, Service

NOBODY = 65534
_LABEL = "inferproof"
_INSIDE, _SOCKET = "/run/replica", "replica.sock"
SOCKET = f"{_INSIDE}/{_SOCKET}"
_MIB = 1 << 20
_FILES, _SPARE_PROCESSES = 4096, 8
_LOG = "32m"
_STEP_S, _ANSWER_S, _BACKLOG = 0.05, 2.0, 1024

_DOOR = (
    "import os, socket, sys; at = socket.create_server(('0.0.0.0', int(sys.argv[3])));"
    " os.set_inheritable(at.fileno(), True); os.execv(sys.executable, [sys.executable, '-I', '-B',"
    " '-c', sys.argv[1], 'door', str(at.fileno()), sys.argv[2]])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lending:
    """A socket that waits for a replica: `folder`, where it comes for it, is all that it sees."""

    callers: socket
    door: socket
    folder: Path

    def hand_over(self, container: Container, *, patience_s: float) -> bool:
        """Give the socket of its callers to the replica that comes to the door; whether it came."""
        deadline = time.monotonic() + patience_s
        self.door.settimeout(_STEP_S)
        while time.monotonic() < deadline:
            try:
                line, _ = self.door.accept()
            except TimeoutError:
                if not is_running(container):
                    return False
                continue
            with line:
                send_fds(line, [b"!"], [self.callers.fileno()])
            return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where the replicas of one service live: on which daemon, in which folder."""

    client: DockerClient
    folder: Path

    def found(self, name: str) -> list[Container]:
        """Return the service's containers, oldest first."""
        wanted: dict[str, str | list[str] | bool] = {"label": f"{_LABEL}.service={name}"}
        every = self.client.containers.list(all=True, filters=wanted)
        return sorted(every, key=number_of)

    def start(self, service: Service, image: str, *, number: int) -> Container:
        """Start one replica and hand it its socket; whether it serves, `serves` says later.

        Raises:
            InfrastructureError: it does not come to take the socket.
        """
        name = f"{service.name}-r{number}"
        with self.lending(name) as lending:
            container = self.client.containers.run(
                image,
                command(service, "take"),
                name=f"{_LABEL}-{name}",
                detach=True,
                labels=labels(service, number),
                volumes=_volumes(service, lending.folder),
                environment=environment(service),
                **sandbox(service),
            )
            if lending.hand_over(container, patience_s=service.plan.start_s):
                return container
        error = _silent(container, service)
        self.remove(container, patience_s=0)
        raise error

    def path_of(self, container: Container) -> Path:
        """Return the name, below `folder`, of the socket by which a replica is reached."""
        return Path("ours") / replica_name(container)

    @contextmanager
    def lending(self, name: str) -> Generator[Lending]:
        """Yield the socket of a replica's callers, and the door at which it is handed out."""
        folder = self.folder / "theirs" / name
        with (
            _listening(self.folder / "ours" / name, mode=0o600) as callers,
            _listening(folder / _SOCKET, mode=0o666) as door,
        ):
            yield Lending(callers=callers, door=door, folder=folder)
        (folder / _SOCKET).unlink()

    def serves(self, path: Path, health: str) -> bool:
        """Whether the replica behind a socket answers its health path with 200."""
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
        try:
            return _is_healthy(f"/proc/self/fd/{folder}/{path}", health)
        finally:
            os.close(folder)

    def remove(self, container: Container, *, patience_s: float) -> None:
        """End a replica and what belongs to it."""
        name = replica_name(container)
        with suppress(NotFound):
            container.stop(timeout=round(patience_s))
            container.remove(force=True)
        (self.folder / "ours" / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "theirs" / name, ignore_errors=True)


def replica_name(container: Container) -> str:
    """Return the name by which the balancer knows a replica."""
    return str(container.name).removeprefix(f"{_LABEL}-")


def version_of(container: Container) -> str:
    """Return the version of the service that a replica is."""
    return _label(container, "version")


def number_of(container: Container) -> int:
    """Return a replica's number; later ones have greater numbers."""
    return int(_label(container, "number"))


def _label(container: Container, name: str) -> str:
    labels = cast("dict[str, str]", container.labels)  # pyright: ignore[reportUnknownMemberType]
    return labels[f"{_LABEL}.{name}"]


def is_running(container: Container) -> bool:
    """Whether its processes run."""
    try:
        container.reload()
    except NotFound:
        return False
    return container.status == "running"


def _is_healthy(path: str, health: str) -> bool:
    connection = HTTPConnection("replica", timeout=_ANSWER_S)
    try:
        with socket(AF_UNIX) as channel:
            channel.settimeout(_ANSWER_S)
            channel.connect(path)
            connection.sock = channel
            connection.request("GET", health)
            return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _listening(place: Path, *, mode: int) -> socket:
    """Return a new socket file that listens, however long the path to it is."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)  # of somebody who died over it
    folder = os.open(place.parent, os.O_PATH | os.O_DIRECTORY)
    made = socket(AF_UNIX)
    try:
        made.bind(f"/proc/self/fd/{folder}/{place.name}")
        place.chmod(mode)
        made.listen(_BACKLOG)
    finally:
        os.close(folder)
    return made


def await_health(spot: Spot, container: Container, service: Service) -> Path:
    """Return the socket of a replica once it serves.

    Raises:
        InfrastructureError: it ended, or does not serve in the time that its plan gives it.
    """
    deadline = time.monotonic() + service.plan.start_s
    path = spot.path_of(container)
    while is_running(container):
        if spot.serves(path, service.plan.health):
            return path
        if time.monotonic() > deadline:
            break
        time.sleep(_STEP_S)
    raise _silent(container, service)


def _silent(container: Container, service: Service) -> InfrastructureError:
    said = container.logs(tail=20).decode(errors="replace").strip()[-500:]
    return InfrastructureError(
        f"replica {replica_name(container)} does not serve {service.plan.health}: {said!r}",
        hint="the version before goes on serving; look at its logs",
    )


def labels(service: Service, number: int) -> dict[str, str]:
    """Return the labels by which a replica is found again."""
    return {
        f"{_LABEL}.service": service.name,
        f"{_LABEL}.version": service.version,
        f"{_LABEL}.candidate": service.candidate,
        f"{_LABEL}.number": str(number),
    }


def command(service: Service, verb: Literal["lend", "take"] = "lend") -> list[str]:
    """Return what a container runs: the shim, which lends the engine out by a socket.

    It makes the socket file, or takes the socket from whoever listens at that file.
    """
    argv = [_filled(word, service) for word in service.plan.argv]
    lent = [verb, SOCKET, str(ENGINE_PORT), "/candidate"]
    return ["python3", "-I", "-B", "-c", shim(), *lent, *argv]


def door(port: int) -> list[str]:
    """Return what opens a port of every interface that leads to the engine's socket."""
    return ["python3", "-I", "-B", "-c", _DOOR, shim(), SOCKET, str(port)]


def shim() -> str:
    """Return the source of what lends an engine out by a socket file, and opens its door."""
    return resources.files("inferproof_remote.serving").joinpath("shim.py").read_text("utf-8")


def environment(service: Service) -> dict[str, str]:
    """Return the engine's environment."""
    own = {name: _filled(value, service) for name, value in service.plan.env.items()}
    threads = str(service.threads)
    return {"HOME": "/tmp", "OMP_NUM_THREADS": threads, "HF_HUB_OFFLINE": "1", **own}  # noqa: S108


def sandbox(service: Service) -> dict[str, Any]:
    """Return the flags that keep a replica apart from everything but its socket and its model."""
    limits = service.limits
    memory = f"{limits.memory_mib}m"
    scratch = f"size={limits.tmp_mib}m,mode=1777,exec,nosuid,nodev"
    return {
        "network_mode": "none",
        "read_only": True,
        "tmpfs": {"/tmp": scratch, "/dev/shm": scratch},  # noqa: S108
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "user": f"{NOBODY}:{NOBODY}",
        "pids_limit": limits.processes + _SPARE_PROCESSES,
        "mem_limit": memory,
        "memswap_limit": memory,
        "nano_cpus": service.threads * 1_000_000_000,
        "ulimits": [
            Ulimit(name="nofile", soft=_FILES, hard=_FILES),
            Ulimit(name="core", soft=0, hard=0),
            Ulimit(name="fsize", soft=limits.tmp_mib * _MIB, hard=limits.tmp_mib * _MIB),
        ],
        "log_config": LogConfig(type="json-file", config={"max-size": _LOG, "max-file": "2"}),
        "init": True,
        "ipc_mode": "private",
    }


def _volumes(service: Service, theirs: Path) -> dict[str, dict[str, str]]:
    volumes = {str(theirs): {"bind": _INSIDE, "mode": "ro"}}
    if service.model:
        volumes[service.model] = {"bind": "/model", "mode": "ro"}
    return volumes


def _filled(word: str, service: Service) -> str:
    values = {
        "port": str(ENGINE_PORT),
        "model": "/model",
        "candidate": "/candidate",
        "python": "python3",
        "threads": str(service.threads),
    }
    for name, value in values.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def lines_of(containers: list[Container], *, since_s: float) -> Iterator[str]:
    """Yield what replicas printed in the last `since_s` seconds, without following them."""
    since = int(time.time() - since_s)
    for container in containers:
        with suppress(APIError):
            text = container.logs(since=since).decode(errors="replace")
            yield from (f"[{replica_name(container)}] {line}" for line in text.splitlines())
