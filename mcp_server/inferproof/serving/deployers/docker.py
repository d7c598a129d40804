"""Replicas as containers on one machine, HAProxy in front: no registry, no network inside."""

import contextlib
import fcntl
import io
import json
import os
import shutil
import tarfile
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any, cast

from docker import DockerClient
from docker.errors import APIError, BuildError, DockerException, ImageNotFound
from docker.models.containers import Container

from inferproof.core.errors import InfrastructureError, NotFound, UsageError
from inferproof.serving.deployers import replicas
from inferproof.serving.deployers.base import Capabilities, Endpoint, Release, Service, Status
from inferproof.serving.deployers.haproxy import Balancer

_DRAIN_S, _STOP_S, _CHECK_S = 600.0, 30.0, 5.0
_OLDEST_API, _PATIENCE_S, _UNIX = "1.41", 60, "unix://"
_CAPABILITIES = Capabilities(
    deploys=True, scale_to_zero=True, rolls_without_spare=False, logs=True, gpus=False
)


class Docker:
    """Services on one Docker daemon; `state` remembers versions, containers carry labels."""

    def __init__(self, state: Path, *, url: str, base_image: str, haproxy: str) -> None:
        self._state = state
        self._url = url
        self._base = base_image
        self._haproxy = haproxy

    @property
    def capabilities(self) -> Capabilities:
        """What this place can do."""
        return _CAPABILITIES

    def render(self, release: Release) -> Mapping[str, bytes]:
        """Return the context that the image is built from."""
        service = release.service
        recipe = (
            f"FROM {self._base}\n"
            f'LABEL inferproof.candidate="{service.candidate}"\n'
            "COPY --chown=0:0 candidate /candidate\n"
            "WORKDIR /candidate\n"
        )
        files = {f"candidate/{name}": data for name, data in release.contents.items()}
        return {"Dockerfile": recipe.encode(), **files}

    def validate(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return what is wrong with a context, without asking anybody."""
        recipe = files.get("Dockerfile", b"").decode(errors="replace").splitlines()
        wrong: list[str] = []
        if not recipe or recipe[0] != f"FROM {self._base}":
            wrong.append(f"the image is not built on {self._base}")
        if any(line.split(" ")[0] not in ("FROM", "LABEL", "COPY", "WORKDIR") for line in recipe):
            wrong.append("the image runs or fetches something while it is built")
        if not any(name.startswith("candidate/") for name in files):
            wrong.append("there are no files of a candidate")
        return tuple(wrong)

    def deploy(self, release: Release) -> Status:
        """Bring a service to this version and number of replicas; serve all the while.

        Raises:
            UsageError: it wants GPUs, which nobody leases here.
            InfrastructureError: a new replica does not serve; those of before still do.
        """
        service = release.service
        _refuse_gpus(service)
        with self._spot(service.name) as spot:
            self._build(spot.client, release)
            _remember(spot.folder, service)
            self._settle(spot, service)
        return self.status(service.name)

    def status(self, name: str) -> Status:
        """Return where a service stands now."""
        with self._spot(name, is_change=False) as spot:
            known = _versions(spot.folder)
            found = spot.found(name)
            if not known:
                return Status(phase="absent")
            service = known[-1]
            ready = [each for each in found if self._serves(spot, each, service)]
            dead = [replicas.replica_name(e) for e in found if not replicas.is_running(e)]
            is_whole = len(ready) == service.replicas == len(found)
            starting = not is_whole and not dead and len(found) >= service.replicas
            return Status(
                phase="ready" if is_whole else "starting" if starting else "degraded",
                desired=service.replicas,
                ready=len(ready),
                version=service.version,
                previous=known[-2].version if len(known) > 1 else None,
                candidate=service.candidate,
                reason=f"ended: {', '.join(dead)}" if dead else "",
            )

    def endpoint(self, name: str) -> Endpoint:
        """Return where a service is called.

        Raises:
            NotFound: there is no such service.
        """
        port = self._balancer(self._known(name)).port
        return Endpoint(url=f"http://127.0.0.1:{port}")

    def scale(self, name: str, replicas: int) -> Status:
        """Have another number of replicas; drop no request. Raises NotFound."""
        service = _versions(self._known(name))[-1].model_copy(update={"replicas": replicas})
        with self._spot(name) as spot:
            _remember(spot.folder, service)
            self._settle(spot, service)
        return self.status(name)

    def promote(self, name: str, to: str) -> Status:
        """Bring the service `to` to the version that `name` has. Raises NotFound."""
        source = _versions(self._known(name))[-1]
        target = source.model_copy(update={"name": to})
        with self._spot(to) as spot:
            _remember(spot.folder, target)
            self._settle(spot, target)
        return self.status(to)

    def rollback(self, name: str) -> Status:
        """Bring a service back to the version before. Raises NotFound if there is none."""
        known = _versions(self._known(name))
        if len(known) < 2:
            raise NotFound(f"{name} has no version before this one", hint="deploy another one")
        before = known[-2].model_copy(update={"replicas": known[-1].replicas})
        with self._spot(name) as spot:
            _remember(spot.folder, before)
            self._settle(spot, before)
        return self.status(name)

    def logs(self, name: str, *, since_s: float) -> Iterator[str]:
        """Yield what its replicas printed since then, each line with its replica's name."""
        self._known(name)
        with self._spot(name, is_change=False) as spot:
            yield from replicas.lines_of(spot.found(name), since_s=since_s)

    def delete(self, name: str) -> Status:
        """End a service and all that belongs to it; gone is gone, also if it never was."""
        with self._spot(name) as spot:
            self._balancer(spot.folder).stop()
            for container in spot.found(name):
                spot.remove(container, patience_s=0)
            for service in _versions(spot.folder):
                with contextlib.suppress(ImageNotFound, APIError):  # another service may use it
                    spot.client.images.remove(_image(service))  # pyright: ignore[reportUnknownMemberType]
            shutil.rmtree(spot.folder)
        return self.status(name)

    def push(self, release: Release, repository: str) -> str:
        """Build the image and push it to a registry; return its name there, by digest.

        Who may push is for Docker's own configuration to say; nothing secret passes through here.

        Raises:
            InfrastructureError: the registry did not take it.
        """
        service = release.service
        tag, digest = service.candidate[:32], ""
        with self._spot(service.name) as spot:
            self._build(spot.client, release)
            api: Any = spot.client.api
            api.tag(_image(service), repository, tag)
            for row in api.push(repository, tag, stream=True, decode=True):
                if "error" in row:
                    raise InfrastructureError(
                        f"{repository} did not take the image: {row['error']}",
                        hint="may this account push there? see: docker login",
                    )
                digest = row.get("aux", {}).get("Digest", digest)
        return f"{repository}@{digest}"

    def _settle(self, spot: replicas.Spot, service: Service) -> None:
        """Replace, one by one, what is no living replica of this version; then fit the number."""
        every = spot.found(service.name)
        good = [e for e in every if self._serves(spot, e, service)]
        good = [e for e in good if replicas.version_of(e) == service.version]
        old = [e for e in every if e not in good]
        number = 1 + max(map(replicas.number_of, every), default=-1)
        balancer = self._balancer(spot.folder)
        for step in range(max(0, service.replicas - len(good))):
            self._launch(spot, balancer, service, number + step)
            if old:
                self._retire(spot, balancer, old.pop(0))
        for spare in [*old, *good[service.replicas :]]:
            self._retire(spot, balancer, spare)

    def _launch(
        self, spot: replicas.Spot, balancer: Balancer, service: Service, number: int
    ) -> None:
        _refuse_gpus(service)
        labelled = spot.start(service, _image(service), number=number)
        try:
            path = replicas.await_health(spot, labelled, service)
        except InfrastructureError:
            spot.remove(labelled, patience_s=0)
            raise
        name = replicas.replica_name(labelled)
        balancer.start({name: path}, health=service.plan.health, check_s=_CHECK_S)
        balancer.add(name, path)

    def _retire(self, spot: replicas.Spot, balancer: Balancer, container: Container) -> None:
        if balancer.is_alive():
            balancer.drop(replicas.replica_name(container), drain_s=_DRAIN_S)
        spot.remove(container, patience_s=_STOP_S)

    def _serves(self, spot: replicas.Spot, container: Container, service: Service) -> bool:
        if not replicas.is_running(container):
            return False
        path = spot.path_of(container)
        balancer = self._balancer(spot.folder)
        known = balancer.names() if balancer.is_alive() else frozenset[str]()
        is_known = replicas.replica_name(container) in known
        return is_known and spot.serves(path, service.plan.health)

    def _build(self, client: DockerClient, release: Release) -> None:
        files = self.render(release)
        if wrong := self.validate(files):
            raise UsageError(f"the image cannot be built: {'; '.join(wrong)}")
        try:
            client.images.build(
                fileobj=_tar(files), custom_context=True, tag=_image(release.service), rm=True
            )
        except (BuildError, APIError) as exc:
            raise InfrastructureError(
                f"the image was not built on {self._base}: {exc}",
                hint=f"is {self._base} on this machine? see: docker images",
            ) from exc

    def _balancer(self, folder: Path) -> Balancer:
        return Balancer(folder, program=self._haproxy)

    def _known(self, name: str) -> Path:
        folder = self._state / name
        if not _versions(folder):
            raise NotFound(f"there is no deployment {name!r}", hint="deploy it first")
        return folder

    @contextlib.contextmanager
    def _spot(self, name: str, *, is_change: bool = True) -> Generator[replicas.Spot]:
        """Yield the daemon and the service's folder; whoever changes it does so alone."""
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self._state / name
        lock = os.open(self._state / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if is_change:
                fcntl.flock(lock, fcntl.LOCK_EX)
                folder.mkdir(mode=0o700, exist_ok=True)
            with contextlib.closing(self._client()) as client:
                yield replicas.Spot(client=client, folder=folder)
        except (DockerException, OSError) as exc:
            raise InfrastructureError(
                f"the Docker daemon at {self._url} failed: {exc}", hint="run: inferproof doctor"
            ) from exc
        finally:
            os.close(lock)

    def _client(self) -> DockerClient:
        """Return a client that speaks the daemon's version, and leaves nothing open if it fails."""
        if self._url.startswith(_UNIX):
            with socket(AF_UNIX) as channel:
                channel.connect(self._url.removeprefix(_UNIX))
        with contextlib.closing(_speaking(self._url, _OLDEST_API)) as probe:
            told = cast("dict[str, str]", probe.version(api_version=False))  # pyright: ignore[reportUnknownMemberType]
        return _speaking(self._url, told["ApiVersion"])


def _refuse_gpus(service: Service) -> None:
    """Refuse a service with GPUs: a container outlives every lease, and others would share it."""
    if service.gpus_each:
        raise UsageError(
            f"{service.name} wants {service.gpus_each} GPUs for each replica; containers here hold "
            "no lease of one",
            hint="deploy it to a place of kind process, which leases the target's GPUs, or of kind "
            "kubernetes",
        )


def _speaking(url: str, version: str) -> DockerClient:
    return DockerClient(base_url=url, version=version, timeout=_PATIENCE_S)


def _image(service: Service) -> str:
    return f"inferproof/{service.candidate[:32]}"


def _versions(folder: Path) -> list[Service]:
    """Return what was deployed in this folder, newest last, each version once."""
    try:
        rows = json.loads((folder / "versions.json").read_bytes())
    except FileNotFoundError:
        return []
    return [Service.model_validate(row) for row in rows]


def _remember(folder: Path, service: Service) -> None:
    """Put a version last; the number of replicas is that of now."""
    others = [each for each in _versions(folder) if each.version != service.version]
    rows = [each.model_dump(mode="json") for each in (*others, service)]
    temporary = folder / ".versions.json"
    temporary.write_text(json.dumps(rows), encoding="utf-8")
    temporary.replace(folder / "versions.json")


def _tar(files: Mapping[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    buffer.seek(0)
    return buffer
