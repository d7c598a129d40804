"""Replicas as one job of the target: sandboxed processes behind a balancer until they are ended."""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.errors import InfrastructureError, NotFound
from inferproof.core.values import Digest, Value
from inferproof.serving.deployers.base import Capabilities, Endpoint, Release, Service, Status

_FILE = "service.json"
_POLL_S = 0.2
_CAPABILITIES = Capabilities(
    deploys=True, scale_to_zero=False, rolls_without_spare=False, logs=True, gpus=True
)


class Jobs(Protocol):
    """The deploy jobs of one target."""

    def start(self, candidate: Digest, replicas: int) -> str:
        """Start replicas of a candidate; return the job's id."""
        ...

    def scale(self, candidate: Digest, replicas: int) -> None:
        """Tell the candidate's running job how many replicas to have."""
        ...

    def facts(self, job_id: str) -> DeployFacts | None:
        """Return how a job stands by its own word; None before its first, and once it is over."""
        ...

    def failure(self, job_id: str) -> str | None:
        """Return why a job is over; None while it is not."""
        ...

    def log(self, job_id: str) -> str:
        """Return the end of what its replicas printed."""
        ...

    def cancel(self, job_id: str) -> None:
        """End a job and all that it started."""
        ...


class _Run(Value):
    """One version of a service, and the job that serves it or did so."""

    service: Service
    job_id: str


class Process:
    """Services as jobs; `state` remembers which job is which. A new version has a new endpoint."""

    def __init__(self, state: Path, jobs: Jobs) -> None:
        self._state = state
        self._jobs = jobs

    @property
    def capabilities(self) -> Capabilities:
        """What this place can do."""
        return _CAPABILITIES

    def render(self, release: Release) -> Mapping[str, bytes]:
        """Return what the job is made of, and the candidate's files."""
        files = {f"candidate/{name}": data for name, data in release.contents.items()}
        return {_FILE: release.service.model_dump_json(indent=1).encode(), **files}

    def validate(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return what is wrong with a rendered service."""
        try:
            service = Service.model_validate_json(files.get(_FILE, b""))
        except ValidationError as exc:
            return tuple(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        return () if service.replicas else ("a job has at least one replica",)

    def deploy(self, release: Release) -> Status:
        """Bring a service to this version and number of replicas; the one before ends last.

        Raises:
            InfrastructureError: it does not come to serve; the version before still does.
        """
        return self._bring(release.service)

    def status(self, name: str) -> Status:
        """Return where a service stands now."""
        runs = self._runs(name)
        if not runs:
            return Status(phase="absent")
        service, job_id = runs[-1].service, runs[-1].job_id
        facts, failure = self._jobs.facts(job_id), self._jobs.failure(job_id)
        ready = facts.deployments[0].healthy if facts else 0
        is_whole = failure is None and ready == service.replicas
        return Status(
            phase="ready" if is_whole else "starting" if failure is None else "degraded",
            desired=service.replicas,
            ready=ready,
            version=service.version,
            previous=runs[-2].service.version if len(runs) > 1 else None,
            candidate=service.candidate,
            reason=failure or "",
        )

    def endpoint(self, name: str) -> Endpoint:
        """Return where it is called. Raises NotFound if it is not there, or does not serve yet."""
        facts = self._jobs.facts(self._known(name).job_id)
        if facts is None or not facts.endpoint:
            raise NotFound(f"{name} does not serve", hint="see its status and its logs")
        return Endpoint(url=facts.endpoint)

    def scale(self, name: str, replicas: int) -> Status:
        """Have another number of replicas; drop no request. Raises NotFound."""
        return self._bring(self._known(name).service.model_copy(update={"replicas": replicas}))

    def promote(self, name: str, to: str) -> Status:
        """Bring the service `to` to the version that `name` has. Raises NotFound."""
        return self._bring(self._known(name).service.model_copy(update={"name": to}))

    def rollback(self, name: str) -> Status:
        """Bring a service back to the version before. Raises NotFound if there is none."""
        now, runs = self._known(name).service, self._runs(name)
        if len(runs) < 2:
            raise NotFound(f"{name} has no version before this one", hint="deploy another one")
        return self._bring(runs[-2].service.model_copy(update={"replicas": now.replicas}))

    def logs(self, name: str, *, since_s: float) -> Iterator[str]:
        """Yield the end of what its replicas printed; a job's log has no times."""
        del since_s
        yield from self._jobs.log(self._known(name).job_id).splitlines()

    def delete(self, name: str) -> Status:
        """End a service and all that belongs to it; gone is gone, also if it never was."""
        for run in self._runs(name):
            self._jobs.cancel(run.job_id)
        self._path(name).unlink(missing_ok=True)
        return self.status(name)

    def _bring(self, service: Service) -> Status:
        runs = self._runs(service.name)
        now = runs[-1] if runs else None
        if now and now.service.version == service.version and not self._jobs.failure(now.job_id):
            if now.service.replicas != service.replicas:
                self._jobs.scale(service.candidate, service.replicas)
            fresh = now.model_copy(update={"service": service})
        else:
            fresh = _Run(
                service=service, job_id=self._jobs.start(service.candidate, service.replicas)
            )
        self._await(fresh)
        others = [run for run in runs if run.service.version != service.version]
        self._write(service.name, [*others, fresh])
        for run in runs:
            if run.job_id != fresh.job_id:
                self._jobs.cancel(run.job_id)
        return self.status(service.name)

    def _await(self, run: _Run) -> None:
        deadline = time.monotonic() + run.service.plan.start_s
        while True:
            facts, failure = self._jobs.facts(run.job_id), self._jobs.failure(run.job_id)
            if facts and facts.deployments[0].healthy == run.service.replicas:
                return
            if failure is not None or time.monotonic() > deadline:
                self._jobs.cancel(run.job_id)
                raise InfrastructureError(
                    f"{run.service.name} does not serve: {failure or 'its time is up'}",
                    hint=f"the version before goes on serving; see: inferproof call job "
                    f'\'{{"job_id": "{run.job_id}"}}\'',
                )
            time.sleep(_POLL_S)

    def _known(self, name: str) -> _Run:
        runs = self._runs(name)
        if not runs:
            raise NotFound(f"there is no deployment {name!r}", hint="deploy it first")
        return runs[-1]

    def _path(self, name: str) -> Path:
        return self._state / f"{name}.json"

    def _runs(self, name: str) -> list[_Run]:
        """Return the versions of a service, newest last, each once."""
        try:
            rows = json.loads(self._path(name).read_bytes())
        except FileNotFoundError:
            return []
        return [_Run.model_validate(row) for row in rows]

    def _write(self, name: str, runs: list[_Run]) -> None:
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._path(f".{name}")
        rows = [run.model_dump(mode="json") for run in runs]
        temporary.write_text(json.dumps(rows), encoding="utf-8")
        temporary.replace(self._path(name))
