"""Replicas as pods: manifests rendered and checked offline, applied by the official client."""

import json
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any

from inferproof.core.errors import InfrastructureError, NotFound, UsageError
from inferproof.core.places import Cluster
from inferproof.serving.deployers.base import Capabilities, Endpoint, Release, Status
from inferproof.serving.deployers.manifests import (
    VERSION_LABEL,
    Releases,
    is_ending,
    noted,
    parsed,
    problems_of,
    rendered,
    standing,
)

_OWNER = "inferproof"
_LEASE_S = 30
_ANSWERS_S = 20.0
_GONE_S, _POLL_S = 90.0, 0.5
_CONFLICT, _ABSENT = 409, 404
_KINDS = (("apps/v1", "Deployment"), ("v1", "Service"), ("networking.k8s.io/v1", "NetworkPolicy"))
_CAPABILITIES = Capabilities(
    deploys=True, scale_to_zero=True, rolls_without_spare=True, logs=True, gpus=True
)


class Kubernetes:
    """Services in one namespace of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def capabilities(self) -> Capabilities:
        """What this place can do."""
        return _CAPABILITIES

    def render(self, release: Release) -> Mapping[str, bytes]:
        """Return the manifests in one file."""
        return rendered(self._cluster, Releases(now=release.service, image=self._cluster.image))

    def validate(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return what is wrong with manifests, by the schemas and by rules that they lack."""
        return problems_of(files)

    def deploy(self, release: Release) -> Status:
        """Bring a service to this version, its manifests tried by the server first.

        Raises:
            InfrastructureError: the cluster refused them or another one is rolling this service.
        """
        known = noted(self._asked(release.service.name))
        releases = Releases(now=release.service, image=self._cluster.image)
        if known is not None:
            same = known.now.version == release.service.version and known.image == releases.image
            before = (known.before, known.image_before) if same else (known.now, known.image)
            releases = releases.model_copy(update={"before": before[0], "image_before": before[1]})
        return self._apply(releases)

    def status(self, name: str) -> Status:
        """Return where a service stands now."""
        found = self._asked(name)
        releases = noted(found)
        return Status(phase="absent") if releases is None else standing(found, releases)

    def endpoint(self, name: str) -> Endpoint:
        """Return where it is called inside the cluster. Raises NotFound."""
        self._known(name)
        return Endpoint(url=f"http://{name}.{self._cluster.namespace}.svc")

    def scale(self, name: str, replicas: int) -> Status:
        """Have another number of replicas. Raises NotFound."""
        known = self._known(name)
        wanted = known.now.model_copy(update={"replicas": replicas})
        return self._apply(known.model_copy(update={"now": wanted}))

    def promote(self, name: str, to: str) -> Status:
        """Bring the service `to` to the version that `name` has. Raises NotFound."""
        known = self._known(name)
        target = noted(self._asked(to))
        return self._apply(
            Releases(
                now=known.now.model_copy(update={"name": to}),
                image=known.image,
                before=target.now if target else None,
                image_before=target.image if target else None,
            )
        )

    def rollback(self, name: str) -> Status:
        """Bring a service back to the version before. Raises NotFound if there is none."""
        known = self._known(name)
        if known.before is None or known.image_before is None:
            raise NotFound(f"{name} has no version before this one", hint="deploy another one")
        return self._apply(
            Releases(
                now=known.before.model_copy(update={"replicas": known.now.replicas}),
                image=known.image_before,
                before=known.now,
                image_before=known.image,
            )
        )

    def logs(self, name: str, *, since_s: float) -> Iterator[str]:
        """Yield what its replicas printed since then, each line with its pod's name."""
        self._known(name)
        where = self._cluster.namespace
        with self._client() as client:
            pods = client.resources.get(api_version="v1", kind="Pod")
            for pod in pods.get(namespace=where, label_selector=f"app={name}").to_dict()["items"]:
                pod_name = pod["metadata"]["name"]
                text = client.request(
                    "get",
                    f"/api/v1/namespaces/{where}/pods/{pod_name}/log",
                    query_params=[("container", "engine"), ("sinceSeconds", max(1, int(since_s)))],
                )
                yield from (f"[{pod_name}] {line}" for line in str(text).splitlines())

    def delete(self, name: str) -> Status:
        """End a service and all that belongs to it; gone is gone, also if it never was.

        Its pods may finish what they answer. Raises UsageError if it is none of ours.
        """
        where = {"name": name, "namespace": self._cluster.namespace}
        with self._client() as client, self._alone(client, name):
            resources = [client.resources.get(api_version=api, kind=kind) for api, kind in _KINDS]
            for resource in resources:
                with _unless_absent():
                    _require_ours(resource.get(**where).to_dict())
            for resource in resources:
                with _unless_absent():
                    resource.delete(body={"propagationPolicy": "Foreground"}, **where)
        deadline = time.monotonic() + _GONE_S
        while (status := self.status(name)).phase != "absent" and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return status

    def _apply(self, releases: Releases) -> Status:
        """Try the manifests on the server, then apply them, alone."""
        files = rendered(self._cluster, releases)
        if wrong := problems_of(files):
            raise UsageError(f"the manifests are wrong: {'; '.join(wrong)[:1000]}")
        name = releases.now.name
        with self._client() as client, self._alone(client, name):
            if is_ending(self._asked(name)):
                what = f"{name} is being deleted"
                raise InfrastructureError(what, hint="wait until it is gone, then repeat")
            for trial in ({"dry_run": "All"}, {}):
                for manifest in parsed(files):
                    kind, version = manifest["kind"], manifest["apiVersion"]
                    resource = client.resources.get(api_version=version, kind=kind)
                    resource.server_side_apply(
                        body=manifest,
                        namespace=self._cluster.namespace,
                        field_manager=_OWNER,
                        force_conflicts=False,
                        **trial,
                    )
        return self.status(name)

    @contextmanager
    def _alone(self, client: Any, name: str) -> Generator[None]:  # noqa: ANN401
        """Hold the service's Lease; who finds it held is refused."""
        leases = client.resources.get(api_version="coordination.k8s.io/v1", kind="Lease")
        where, lease = self._cluster.namespace, f"{name}-deploy"
        now = datetime.now(UTC)
        body: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": lease, "namespace": where},
            "spec": {
                "holderIdentity": token_hex(8),
                "leaseDurationSeconds": _LEASE_S,
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        old: dict[str, Any] | None = None
        with _unless_absent():
            old = leases.get(name=lease, namespace=where).to_dict()
        if old is None:
            held = leases.create(body=body, namespace=where)
        elif _is_over(old, now):
            body["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
            held = leases.replace(body=body, namespace=where)
        else:
            raise InfrastructureError(
                f"{name} is being deployed by another one", hint=f"wait {_LEASE_S} s, then repeat"
            )
        try:
            yield
        finally:
            mine = {"preconditions": {"resourceVersion": held.metadata.resourceVersion}}
            with _unless_absent(_CONFLICT):  # it was another's after it had run out
                leases.delete(name=lease, namespace=where, body=mine)

    def _asked(self, name: str) -> dict[str, Any] | None:
        with self._client() as client:
            deployments = client.resources.get(api_version="apps/v1", kind="Deployment")
            with _unless_absent():
                return deployments.get(name=name, namespace=self._cluster.namespace).to_dict()
        return None

    def _known(self, name: str) -> Releases:
        releases = noted(self._asked(name))
        if releases is None:
            raise NotFound(f"there is no deployment {name!r}", hint="deploy it first")
        return releases

    @contextmanager
    def _client(self) -> Generator[Any]:
        """Yield a client of the cluster; its refusals become errors of ours."""
        try:
            from kubernetes.client.exceptions import ApiException
            from kubernetes.config import (
                ConfigException,
                new_client_from_config,  # pyright: ignore[reportUnknownVariableType]
            )
            from urllib3.exceptions import HTTPError
        except ModuleNotFoundError as exc:
            raise UsageError(
                "the client of Kubernetes is not installed here",
                hint="run: pip install 'inferproof[cluster]'",
            ) from exc

        place = f"namespace {self._cluster.namespace} of {self._cluster.context or 'the cluster'}"
        try:
            api: Any = new_client_from_config(  # pyright: ignore[reportUnknownVariableType]
                config_file=self._cluster.kubeconfig, context=self._cluster.context
            )
            yield _hasty(api)
        except ApiException as exc:
            raise _refusal(place, exc) from exc
        except (ConfigException, HTTPError, OSError) as exc:
            raise InfrastructureError(
                f"{place} cannot be reached: {exc}", hint="run: kubectl cluster-info"
            ) from exc


def _require_ours(found: Mapping[str, Any]) -> None:
    if VERSION_LABEL not in found["metadata"].get("labels", {}):
        raise UsageError(
            f"the {found['kind']} {found['metadata']['name']!r} was not made by inferproof",
            hint="delete it by what made it, or use another name",
        )


def _hasty(api: Any) -> Any:  # noqa: ANN401 (the client has no types)
    """Return a client whose every question has a deadline."""
    from kubernetes.dynamic import DynamicClient

    class Hasty(DynamicClient):
        def request(
            self,
            method: str,
            path: str,
            body: Any = None,  # noqa: ANN401
            **asked: Any,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            """Ask; who does not answer in time cannot be reached."""
            asked = {"_request_timeout": _ANSWERS_S, **asked}
            base: Any = super()
            return base.request(method, path, body=body, **asked)

    return Hasty(api)


@contextmanager
def _unless_absent(*also: int) -> Generator[None]:
    """Pass over that something is not there, and over these answers."""
    from kubernetes.client.exceptions import ApiException

    try:
        yield
    except ApiException as exc:
        if _status(exc) not in (_ABSENT, *also):
            raise


def _status(exc: Any) -> int:  # noqa: ANN401 (the client's errors have no types)
    return int(exc.status or 0)


def _refusal(place: str, exc: Any) -> InfrastructureError:  # noqa: ANN401 (see above)
    hint = "mend what it says; the version before goes on serving"
    if _status(exc) == _CONFLICT:
        hint = "somebody else changed it: see kubectl get --show-managed-fields -o yaml"
    return InfrastructureError(f"{place} refused: {_status(exc)} {_message(exc)}", hint=hint)


def _message(exc: Any) -> str:  # noqa: ANN401
    try:
        return str(json.loads(exc.body)["message"])[:800]
    except (ValueError, KeyError, TypeError):
        return str(exc.reason)


def _is_over(lease: Mapping[str, Any], now: datetime) -> bool:
    told = lease["spec"].get("renewTime")
    if told is None or not lease["spec"].get("holderIdentity"):
        return True
    renewed = datetime.fromisoformat(str(told).replace("Z", "+00:00"))
    return now - renewed > timedelta(seconds=_LEASE_S)
