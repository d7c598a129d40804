"""A service as a Truss for Baseten: rendered and checked offline. Pushing it needs an account."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NoReturn, cast

import yaml
from pydantic import Field, ValidationError

from inferproof.core.errors import UsageError
from inferproof.core.values import Value
from inferproof.serving.deployers import replicas
from inferproof.serving.deployers.base import Capabilities, Endpoint, Release, Status

_CONFIG, _START = "config.yaml", "packages/start.py"
_PORT, _TAKEN_PORT, _CONCURRENCY = 8000, 8080, 32
_CAPABILITIES = Capabilities(
    deploys=False, scale_to_zero=True, rolls_without_spare=False, logs=False, gpus=True
)
_ACCELERATORS = (
    *("T4", "L4", "A10G", "V100", "A100", "A100_40GB", "H100", "H100_40GB", "H100_MIG_40GB"),
    *("H200", "B10", "B200", "B300", "GB200", "GB300"),
)
_RUN = """\
\"\"\"Start the engine and open its door, as everywhere else.\"\"\"

import os
import subprocess
import sys

ENGINE, DOOR, ENV = {engine}, {door}, {env}
os.makedirs({folder}, exist_ok=True)
engine = subprocess.Popen([sys.executable, *ENGINE[1:]], env={{**os.environ, **ENV}})
door = subprocess.Popen([sys.executable, *DOOR[1:]])
code = engine.wait()
door.kill()
sys.exit(code)
"""


class _Image(Value):
    image: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9./:_-]*(@sha256:[0-9a-f]{64})?$")]


class _Server(Value):
    start_command: Annotated[str, Field(min_length=1)]
    server_port: Annotated[int, Field(ge=1024, le=65535)]
    predict_endpoint: Annotated[str, Field(pattern=r"^/\S*$")]
    readiness_endpoint: Annotated[str, Field(pattern=r"^/\S*$")]
    liveness_endpoint: Annotated[str, Field(pattern=r"^/\S*$")]


class _Resources(Value):
    accelerator: Annotated[str, Field(pattern=r"^[A-Z0-9_]+:[1-8]$")] | None = None
    use_gpu: bool
    cpu: str
    memory: str


class _Runtime(Value):
    predict_concurrency: Annotated[int, Field(ge=1)]


class _Config(Value):
    """What of a Truss's config.yaml we write; Truss itself takes unknown keys and empty images."""

    model_name: Annotated[str, Field(min_length=1)]
    base_image: _Image
    docker_server: _Server
    resources: _Resources
    runtime: _Runtime
    secrets: dict[str, None] = {}


class Truss:
    """Services as Trusses; what runs hosted is deployed by `truss push` and an account."""

    def __init__(self, *, base_image: str, accelerator: str | None = None) -> None:
        self._base = base_image
        self._accelerator = accelerator

    @property
    def capabilities(self) -> Capabilities:
        """What this place can do."""
        return _CAPABILITIES

    def render(self, release: Release) -> Mapping[str, bytes]:
        """Return the Truss: its configuration, the candidate's files and what starts them."""
        service = release.service
        engine = [word.replace("/candidate", "/app/data") for word in replicas.command(service)]
        door = replicas.door(_PORT + 1)
        folder = replicas.SOCKET.rpartition("/")[0]
        start = _RUN.format(
            engine=json.dumps(engine),
            door=json.dumps(door),
            env=json.dumps(replicas.environment(service)),
            folder=json.dumps(folder),
        )
        config: dict[str, Any] = {
            "model_name": service.name,
            "base_image": {"image": self._base},
            "docker_server": {
                "start_command": "python3 /packages/start.py",
                "server_port": _PORT + 1,
                "predict_endpoint": "/v1/completions",
                "readiness_endpoint": service.plan.health,
                "liveness_endpoint": service.plan.health,
            },
            "resources": {
                "cpu": str(service.threads),
                "memory": f"{service.limits.memory_mib}Mi",
                "use_gpu": service.gpus_each > 0,
            },
            "runtime": {"predict_concurrency": _CONCURRENCY},
        }
        if service.gpus_each:
            config["resources"]["accelerator"] = f"{self._accelerator}:{service.gpus_each}"
        data = {f"data/{name}": content for name, content in release.contents.items()}
        text = yaml.safe_dump(config, sort_keys=False)
        return {_CONFIG: text.encode(), _START: start.encode(), **data}

    def validate(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return what is wrong with a Truss, by our rules and by Truss's own where installed."""
        try:
            raw = cast("dict[str, Any]", yaml.safe_load(files[_CONFIG]))
            config = _Config.model_validate(raw)
        except KeyError:
            return (f"there is no {_CONFIG}",)
        except yaml.YAMLError as exc:
            return (f"{_CONFIG} is no YAML: {exc}",)
        except ValidationError as exc:
            return tuple(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        return (*_by_rule(config, files), *_by_truss(raw))

    def deploy(self, release: Release) -> Status:
        """Refuse: see `_pushed`."""
        _pushed(release.service.name)

    def status(self, name: str) -> Status:
        """Refuse: see `_pushed`."""
        _pushed(name)

    def endpoint(self, name: str) -> Endpoint:
        """Refuse: see `_pushed`."""
        _pushed(name)

    def scale(self, name: str, replicas: int) -> Status:
        """Refuse: see `_pushed`."""
        _pushed(name)

    def promote(self, name: str, to: str) -> Status:
        """Refuse: see `_pushed`."""
        _pushed(name)

    def rollback(self, name: str) -> Status:
        """Refuse: see `_pushed`."""
        _pushed(name)

    def logs(self, name: str, *, since_s: float) -> Iterator[str]:
        """Refuse: see `_pushed`."""
        _pushed(name)

    def delete(self, name: str) -> Status:
        """Refuse: see `_pushed`."""
        _pushed(name)


def _pushed(name: str) -> NoReturn:
    """Say that a Truss is pushed by a person who has an account.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        f"{name} is a Truss: it is rendered and checked here, and runs hosted",
        hint="render it, then a person with an account runs: truss push --wait",
    )


def _by_rule(config: _Config, files: Mapping[str, bytes]) -> list[str]:
    wrong: list[str] = []
    resources = config.resources
    if config.docker_server.server_port == _TAKEN_PORT:
        wrong.append(f"docker_server.server_port: {_TAKEN_PORT} is taken by Baseten's own proxy")
    if resources.use_gpu != (resources.accelerator is not None):
        wrong.append("resources: an accelerator is named if and only if a GPU is used")
    if resources.accelerator and resources.accelerator.partition(":")[0] not in _ACCELERATORS:
        wrong.append(f"resources.accelerator: {resources.accelerator} is not known")
    started = re.findall(r"/packages/(\S+)", config.docker_server.start_command)
    wrong += [f"packages/{name} is missing" for name in started if f"packages/{name}" not in files]
    return wrong


def _by_truss(raw: dict[str, Any]) -> list[str]:
    """Return what Truss itself says; nothing where it is not installed."""
    try:
        from truss.base.truss_config import TrussConfig  # pyright: ignore
    except ModuleNotFoundError:
        return []
    try:
        TrussConfig.from_dict(raw)  # pyright: ignore
    except ValueError as exc:
        return [f"truss: {exc}"]
    return []
