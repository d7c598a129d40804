"""Replicas as containers without a network: the flags of their sandbox, and how they are reached.

The only way in is a socket file that the replica makes in a folder of its own. Once it is there the
folder is closed to the replica, and requests go through a second name of the very same socket, in a
folder that the replica does not see: what it puts in its place later leads nowhere.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from importlib import resources
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any, cast

from docker import DockerClient
from docker.errors import APIError, NotFound
from docker.models.containers import Container
from docker.types import DeviceRequest, Ulimit

from inferproof.core.errors import InfrastructureError
from inferproof.serving.deployers.base import ENGINE_PORT, Service

NOBODY = 65534
_LABEL = "inferproof"
_INSIDE, _SOCKET = "/run/replica", "replica.sock"
SOCKET = f"{_INSIDE}/{_SOCKET}"
_MIB = 1 << 20
_FILES, _SPARE_PROCESSES = 4096, 8
_STEP_S, _ANSWER_S = 0.05, 2.0


_DOOR = (
    "import os, socket, sys; at = socket.create_server(('0.0.0.0', int(sys.argv[3])));"
    " os.set_inheritable(at.fileno(), True); os.execv(sys.executable, [sys.executable, '-I', '-B',"
    " '-c', sys.argv[1], 'door', str(at.fileno()), sys.argv[2]])"
)


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

    def start(self, service: Service, image: str, *, number: int, gpus: list[str]) -> Container:
        """Start one replica; whether it serves, `serves` says later."""
        name = f"{service.name}-r{number}"
        theirs = self.folder / "theirs" / name
        theirs.mkdir(parents=True)
        theirs.chmod(0o777)  # below a folder of ours alone
        return self.client.containers.run(
            image,
            command(service),
            name=f"{_LABEL}-{name}",
            detach=True,
            labels=labels(service, number, gpus),
            volumes=_volumes(service, theirs),
            environment=environment(service),
            device_requests=_devices(gpus),
            **sandbox(service),
        )

    def admitted(self, container: Container) -> Path | None:
        """Return the replica's socket, below `folder`, under a name that is ours alone.

        Its own folder is closed to it. None while it has made no socket.
        """
        ours = self.folder / "ours" / replica_name(container)
        theirs = self.folder / "theirs" / replica_name(container)
        if not ours.exists():
            ours.parent.mkdir(exist_ok=True)
            try:
                os.link(theirs / _SOCKET, ours, follow_symlinks=False)
            except FileNotFoundError:
                return None
            if not stat.S_ISSOCK(ours.lstat().st_mode):
                ours.unlink()
                return None
            ours.chmod(0o600)
            theirs.chmod(0o555)
        return ours.relative_to(self.folder)

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
        theirs = self.folder / "theirs" / name
        if theirs.is_dir():
            theirs.chmod(0o700)
            for path in theirs.iterdir():
                path.unlink()
            theirs.rmdir()


def replica_name(container: Container) -> str:
    """Return the name by which the balancer knows a replica."""
    return str(container.name).removeprefix(f"{_LABEL}-")


def version_of(container: Container) -> str:
    """Return the version of the service that a replica is."""
    return _label(container, "version")


def number_of(container: Container) -> int:
    """Return a replica's number; later ones have greater numbers."""
    return int(_label(container, "number"))


def gpus_of(container: Container) -> frozenset[str]:
    """Return the GPUs that were given to a replica."""
    return frozenset(_label(container, "gpus").split())


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


def await_health(spot: Spot, container: Container, service: Service) -> Path:
    """Return the socket of a replica once it serves.

    Raises:
        InfrastructureError: it ended, or does not serve in the time that its plan gives it.
    """
    deadline = time.monotonic() + service.plan.start_s
    while is_running(container):
        path = spot.admitted(container)
        if path is not None and spot.serves(path, service.plan.health):
            return path
        if time.monotonic() > deadline:
            break
        time.sleep(_STEP_S)
    said = container.logs(tail=20).decode(errors="replace").strip()[-500:]
    raise InfrastructureError(
        f"replica {replica_name(container)} does not serve {service.plan.health}: {said!r}",
        hint="the version before goes on serving; look at its logs",
    )


def labels(service: Service, number: int, gpus: list[str]) -> dict[str, str]:
    """Return the labels by which a replica is found again."""
    return {
        f"{_LABEL}.service": service.name,
        f"{_LABEL}.version": service.version,
        f"{_LABEL}.candidate": service.candidate,
        f"{_LABEL}.number": str(number),
        f"{_LABEL}.gpus": " ".join(gpus),
    }


def command(service: Service) -> list[str]:
    """Return what a container runs: the shim that lends the engine out by a socket file."""
    argv = [_filled(word, service) for word in service.plan.argv]
    lent = ["lend", SOCKET, str(ENGINE_PORT), "/candidate"]
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
        "init": True,
        "ipc_mode": "private",
    }


def _volumes(service: Service, theirs: Path) -> dict[str, dict[str, str]]:
    volumes = {str(theirs): {"bind": _INSIDE, "mode": "rw"}}
    if service.model:
        volumes[service.model] = {"bind": "/model", "mode": "ro"}
    return volumes


def _devices(gpus: list[str]) -> list[DeviceRequest]:
    return [DeviceRequest(device_ids=gpus, capabilities=[["gpu"]])] if gpus else []


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
