"""A service as Kubernetes manifests: rendered, checked offline, and read back from a cluster."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, cast

import yaml
from jinja2 import Environment, StrictUndefined, Template
from pydantic import ValidationError

from inferproof.core.places import Cluster
from inferproof.core.values import Value
from inferproof.serving.deployers import replicas
from inferproof.serving.deployers.base import Service, Status

SCHEMA, VERSION_LABEL = "1.34", "inferproof/version"
_FILE, _NOTE, _GPU = "deployment.yaml", "inferproof/releases", "nvidia.com/gpu"
_PORT, _DRAIN_S, _STOP_S = 8080, 15, 30


class Releases(Value):
    """What a Deployment's annotation remembers: what it is and what it was."""

    now: Service
    image: str
    before: Service | None = None
    image_before: str | None = None


def rendered(cluster: Cluster, releases: Releases) -> Mapping[str, bytes]:
    """Return the manifests of a service in one file."""
    service = releases.now
    memory = f"{service.limits.memory_mib}Mi"
    held: dict[str, str] = {"cpu": str(service.threads), "memory": memory}
    if service.gpus_each:
        held["nvidia.com/gpu"] = str(service.gpus_each)
    labels = {"app": service.name, VERSION_LABEL: service.version[:32]}
    environment = replicas.environment(service)
    text = _template().render(
        service=service,
        name=service.name,
        namespace=cluster.namespace,
        image=releases.image,
        pull_secret=cluster.pull_secret,
        labels=labels,
        selector={"app": service.name},
        annotations={_NOTE: releases.model_dump_json()},
        engine=replicas.command(service),
        door=replicas.door(_PORT),
        env=[{"name": name, "value": value} for name, value in environment.items()],
        resources=held,
        port=_PORT,
        start_s=int(service.plan.start_s),
        drain_s=_DRAIN_S,
        stop_s=_STOP_S,
    )
    return {_FILE: text.encode()}


def noted(found: Any) -> Releases | None:  # noqa: ANN401 (as the cluster's client returns it)
    """Return what a Deployment's annotation remembers; None of one that is not ours."""
    try:
        return Releases.model_validate_json(found["metadata"]["annotations"][_NOTE])
    except (KeyError, TypeError, ValidationError):
        return None


def is_ending(found: Any) -> bool:  # noqa: ANN401 (see `noted`)
    """Say whether a Deployment is being deleted, which nothing takes back."""
    return bool(found and found["metadata"].get("deletionTimestamp"))


def standing(found: Any, releases: Releases) -> Status:  # noqa: ANN401 (see `noted`)
    """Return where a Deployment stands by its own word."""
    desired, state = int(found["spec"]["replicas"]), cast("Any", found.get("status") or {})
    counts = [int(state.get(f"{each}eplicas") or 0) for each in ("readyR", "updatedR", "r")]
    seen = state.get("observedGeneration") == found["metadata"]["generation"]
    problems = [
        str(row.get("message", ""))
        for row in state.get("conditions") or ()
        if row["status"] != "True"
    ]
    if is_ending(found):
        problems.append("it is being deleted")
    is_whole = seen and counts == [desired] * 3 and not is_ending(found)
    return Status(
        phase="ready" if is_whole else "degraded" if problems else "starting",
        desired=desired,
        ready=counts[0],
        version=releases.now.version,
        previous=releases.before.version if releases.before else None,
        candidate=releases.now.candidate,
        reason="" if is_whole else "; ".join(problems)[:500],
    )


def parsed(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return the manifests in rendered files."""
    return [
        cast("dict[str, Any]", manifest)
        for data in files.values()
        for manifest in yaml.safe_load_all(data)
    ]


def problems_of(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return what is wrong with manifests, by the schemas and by rules that they lack."""
    wrong: list[str] = []
    for manifest in parsed(files):
        wrong += _by_schema(manifest)
        if not wrong:
            wrong += _by_rule(manifest) if manifest.get("kind") == "Deployment" else []
            wrong += _by_ports(manifest)
    return tuple(wrong)


def _by_schema(manifest: Mapping[str, Any]) -> list[str]:
    """Return what the published schemas say; nothing where their package is not installed."""
    try:
        import kubernetes_validate as schemas  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError:
        return []
    try:
        schemas.validate(dict(manifest), SCHEMA, strict=True)
    except schemas.ValidationError as exc:
        return [f"{manifest.get('kind')}: {'.'.join(map(str, exc.path))}: {exc.message[:300]}"]
    except schemas.SchemaNotFoundError:
        return [f"no kind {manifest.get('kind')!r} in {manifest.get('apiVersion')!r}"]
    return []


def _by_rule(deployment: Mapping[str, Any]) -> list[str]:
    """Return what the server would refuse, or what would wait for ever, and no schema sees."""
    spec = deployment["spec"]
    pod, roll = spec["template"], spec["strategy"]["rollingUpdate"]
    wrong: list[str] = []
    labels = pod["metadata"]["labels"].items()
    if not spec["selector"]["matchLabels"].items() <= labels:
        wrong.append("the selector does not match the pods' labels")
    held = [each["resources"] for each in pod["spec"]["containers"]]
    gpus = [(r["limits"].get(_GPU), r["requests"].get(_GPU)) for r in held]
    if any(limit != request for limit, request in gpus):
        wrong.append("a container asks for another number of GPUs than its limit")
    if any(limit for limit, _ in gpus) and roll["maxSurge"] != 0:
        wrong.append("maxSurge is not 0: on a full pool of GPUs the roll would wait for ever")
    if roll["maxSurge"] == roll["maxUnavailable"] == 0:
        wrong.append("maxSurge and maxUnavailable are both 0: nothing could be replaced")
    if any("@sha256:" not in each["image"] for each in pod["spec"]["containers"]):
        wrong.append("an image is not named by its digest")
    return wrong


def _by_ports(manifest: Mapping[str, Any]) -> list[str]:
    """Return which ports an older server could not apply: it merges them by number and protocol."""
    spec = manifest["spec"]
    holders = spec["template"]["spec"]["containers"] if "template" in spec else [spec]
    ports = [port for holder in holders for port in holder.get("ports", ())]
    return [f"a port has no protocol: {port}" for port in ports if "protocol" not in port]


def _template() -> Template:
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, autoescape=False)  # noqa: S701 (no HTML)
    environment.filters["json"] = json.dumps
    source = resources.files("inferproof.serving.deployers").joinpath("kubernetes.yaml.j2")
    return environment.from_string(source.read_text(encoding="utf-8"))
