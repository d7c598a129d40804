"""The whole life of a deployment on a real API server: runs where INFERPROOF_KUBECONFIG points."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inferproof.core.errors import InfrastructureError, NotFound, UsageError
from inferproof.core.places import Cluster
from inferproof.serving.deployers.base import Release, Service, Status
from inferproof.serving.deployers.kubernetes import Kubernetes
from inferproof.serving.deployers.manifests import is_ending
from inferproof.serving.engines.base import Plan

KUBECONFIG = os.environ.get("INFERPROOF_KUBECONFIG", "")
IMAGE = os.environ.get("INFERPROOF_KUBE_IMAGE", f"registry.example/engine@sha256:{'a' * 64}")
NAMESPACE = os.environ.get("INFERPROOF_KUBE_NAMESPACE", "default")
GPUS_EACH = int(os.environ.get("INFERPROOF_KUBE_GPUS_EACH", "0"))
WAIT_S = 180.0
NAME, OTHER = "inferproof-test", "inferproof-test-other"
KINDS = (
    "apps/v1/Deployment",
    "v1/Service",
    "networking.k8s.io/v1/NetworkPolicy",
    "apps/v1/ReplicaSet",
    "v1/Pod",
)

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not KUBECONFIG, reason="INFERPROOF_KUBECONFIG names no cluster: not run"),
]


def release(word: str, *, replicas: int = 2) -> Release:
    argv = ("{python}", "-m", "http.server", "{port}", "--bind", "127.0.0.1")
    plan = Plan(engine="command", supervised=True, argv=argv, env={"WORD": word}, health="/")
    service = Service(
        name=NAME,
        candidate="c" * 64,
        plan=plan,
        replicas=replicas,
        gpus_each=GPUS_EACH,
    )
    return Release(service=service, contents={})


@pytest.fixture
def place() -> Iterator[Kubernetes]:
    assert Path(KUBECONFIG).is_file()
    place = Kubernetes(Cluster(namespace=NAMESPACE, image=IMAGE, kubeconfig=KUBECONFIG))
    place.delete(NAME)
    yield place
    assert place.delete(NAME).phase == "absent"


def ready(place: Kubernetes, replicas: int, name: str = NAME) -> Status:
    deadline = time.monotonic() + WAIT_S
    while (status := place.status(name)).phase != "ready" or status.ready != replicas:
        assert time.monotonic() < deadline, status
        time.sleep(0.5)
    return status


def objects(place: Kubernetes, kind: str) -> list[dict[str, Any]]:
    """Return what the namespace has of a kind for the test's service."""
    version, _, name = kind.rpartition("/")
    with place._client() as client:  # pyright: ignore[reportPrivateUsage]
        resource = client.resources.get(api_version=version, kind=name)
        return resource.get(namespace=NAMESPACE, label_selector=f"app={NAME}").to_dict()["items"]


def removed(place: Kubernetes, kind: str, name: str) -> None:
    """Have somebody else remove what is theirs."""
    version, _, of_kind = kind.rpartition("/")
    with place._client() as client:  # pyright: ignore[reportPrivateUsage]
        resource = client.resources.get(api_version=version, kind=of_kind)
        resource.delete(name=name, namespace=NAMESPACE)


def changed(place: Kubernetes, manifest: dict[str, Any]) -> None:
    """Have somebody else set what a manifest says."""
    with place._client() as client:  # pyright: ignore[reportPrivateUsage]
        resource = client.resources.get(api_version=manifest["apiVersion"], kind=manifest["kind"])
        resource.server_side_apply(
            body=manifest, namespace=NAMESPACE, field_manager="somebody", force_conflicts=True
        )


def test_deploy_roll_on_a_full_pool_roll_back_scale_and_delete(place: Kubernetes):
    with pytest.raises(NotFound):
        place.endpoint(NAME)
    place.deploy(release("one"))
    one = ready(place, 2)
    with pytest.raises(NotFound, match="no version before"):
        place.rollback(NAME)
    place.deploy(release("one"))
    assert ready(place, 2) == one
    place.deploy(release("two"))
    two = ready(place, 2)
    assert two.previous == one.version
    place.rollback(NAME)
    back = ready(place, 2)
    assert (back.version, back.previous) == (one.version, two.version)
    place.scale(NAME, 1)
    ready(place, 1)
    place.scale(NAME, 0)
    ready(place, 0)
    assert place.endpoint(NAME).url == f"http://{NAME}.{NAMESPACE}.svc"
    assert place.delete(NAME) == place.delete(NAME) == Status(phase="absent")
    for kind in KINDS:
        assert objects(place, kind) == [], kind


@pytest.mark.skipif(not GPUS_EACH, reason="the pods hold no GPU: no pool is full")
def test_a_roll_asks_for_no_gpu_more_than_the_service_holds(place: Kubernetes):
    place.deploy(release("one"))
    ready(place, 2)
    place.deploy(release("two"))
    most, deadline = 0, time.monotonic() + WAIT_S
    while (status := place.status(NAME)).phase != "ready" or status.ready != 2:
        assert time.monotonic() < deadline, status
        living = [pod for pod in objects(place, "v1/Pod") if not is_ending(pod)]
        most = max(most, len(living))
    assert most == 2


def test_a_version_is_promoted_to_another_name_that_can_be_rolled_back(place: Kubernetes):
    place.deploy(release("one", replicas=1))
    place.promote(NAME, OTHER)
    assert ready(place, 1, OTHER).version == place.status(NAME).version
    place.scale(NAME, 0)
    place.deploy(release("two", replicas=0))
    place.promote(NAME, OTHER)
    place.rollback(OTHER)
    assert place.status(OTHER).version == release("one").service.version
    assert place.delete(OTHER).phase == "absent"
    assert place.status(NAME).phase != "absent"


def test_what_the_server_refuses_is_told_and_changes_nothing(place: Kubernetes):
    place.deploy(release("one", replicas=1))
    before = [row["metadata"]["resourceVersion"] for row in objects(place, KINDS[1])]
    good = release("one", replicas=1)
    plan = good.service.plan.model_copy(update={"env": {"NOT A NAME=": "x"}})
    bad = Release(service=good.service.model_copy(update={"plan": plan}), contents={})
    with pytest.raises(InfrastructureError, match=r"422.*NOT A NAME="):
        place.deploy(bad)
    assert place.status(NAME).version == good.service.version
    assert [row["metadata"]["resourceVersion"] for row in objects(place, KINDS[1])] == before


def test_all_manifests_are_tried_before_the_first_is_applied(place: Kubernetes):
    ports = [{"name": "other", "port": 80, "protocol": "TCP"}]
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}}
    changed(place, {**body, "spec": {"ports": ports, "selector": {"app": "other"}}})
    with pytest.raises(InfrastructureError, match="409"):
        place.deploy(release("one", replicas=1))
    assert objects(place, "apps/v1/Deployment") == []
    with pytest.raises(UsageError, match=r"the Service .* was not made by inferproof"):
        place.delete(NAME)
    removed(place, "v1/Service", NAME)


def test_a_deployment_that_another_one_rolls_is_left_alone(place: Kubernetes):
    place.deploy(release("one", replicas=1))
    with (
        place._client() as client,  # pyright: ignore[reportPrivateUsage]
        place._alone(client, NAME),  # pyright: ignore[reportPrivateUsage]
    ):
        for act in (lambda: place.deploy(release("two", replicas=1)), lambda: place.delete(NAME)):
            with pytest.raises(InfrastructureError, match="being deployed by another one"):
                act()
    place.deploy(release("two", replicas=1))


def test_what_somebody_else_set_is_not_overwritten(place: Kubernetes):
    place.deploy(release("one", replicas=1))
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME}}
    changed(place, {**body, "spec": {"replicas": 4}})
    with pytest.raises(InfrastructureError, match="409"):
        place.deploy(release("two", replicas=1))


def test_what_somebody_else_made_is_not_deleted(place: Kubernetes):
    labels = {"app": OTHER}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": IMAGE}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pod}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": OTHER}}
    changed(place, {**body, "spec": spec})
    with pytest.raises(UsageError, match="not made by inferproof"):
        place.delete(OTHER)
    removed(place, "apps/v1/Deployment", OTHER)
