"""The whole life of a deployment on a real API server: runs where INFERPROOF_KUBECONFIG points."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferproof.core.errors import InfrastructureError, NotFound
from inferproof.core.places import Cluster
from inferproof.serving.deployers.base import Release, Service, Status
from inferproof.serving.deployers.kubernetes import Kubernetes
from inferproof.serving.engines.base import Plan

KUBECONFIG = os.environ.get("INFERPROOF_KUBECONFIG", "")
IMAGE = os.environ.get("INFERPROOF_KUBE_IMAGE", f"registry.example/engine@sha256:{'a' * 64}")
NAMESPACE = os.environ.get("INFERPROOF_KUBE_NAMESPACE", "default")
GPUS_EACH = int(os.environ.get("INFERPROOF_KUBE_GPUS_EACH", "0"))
WAIT_S = 180.0

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not KUBECONFIG, reason="INFERPROOF_KUBECONFIG names no cluster: not run"),
]


def release(word: str, *, replicas: int = 2) -> Release:
    argv = ("{python}", "-m", "http.server", "{port}", "--bind", "127.0.0.1")
    plan = Plan(engine="command", supervised=True, argv=argv, env={"WORD": word}, health="/")
    service = Service(
        name="inferproof-test",
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
    place.delete("inferproof-test")
    yield place
    place.delete("inferproof-test")
    assert place.status("inferproof-test").phase == "absent"


def ready(place: Kubernetes, replicas: int) -> Status:
    deadline = time.monotonic() + WAIT_S
    while (status := place.status("inferproof-test")).phase != "ready" or status.ready != replicas:
        assert time.monotonic() < deadline, status
        time.sleep(0.5)
    return status


def test_deploy_roll_on_a_full_pool_roll_back_scale_and_delete(place: Kubernetes):
    with pytest.raises(NotFound):
        place.endpoint("inferproof-test")
    place.deploy(release("one"))
    one = ready(place, 2)
    place.deploy(release("one"))
    assert ready(place, 2) == one
    place.deploy(release("two"))
    two = ready(place, 2)
    assert two.previous == one.version
    place.rollback("inferproof-test")
    back = ready(place, 2)
    assert (back.version, back.previous) == (one.version, two.version)
    place.scale("inferproof-test", 1)
    ready(place, 1)
    assert place.endpoint("inferproof-test").url.endswith(f".{NAMESPACE}.svc")


def test_a_deployment_that_another_one_rolls_is_left_alone(place: Kubernetes):
    place.deploy(release("one", replicas=1))
    with (
        place._client() as client,  # pyright: ignore[reportPrivateUsage]
        place._alone(client, "inferproof-test"),  # pyright: ignore[reportPrivateUsage]
        pytest.raises(InfrastructureError, match="being deployed by another one"),
    ):
        place.deploy(release("two", replicas=1))
    place.deploy(release("two", replicas=1))


def test_what_somebody_else_set_is_not_overwritten(place: Kubernetes):
    place.deploy(release("one", replicas=1))
    with place._client() as client:  # pyright: ignore[reportPrivateUsage]
        deployments = client.resources.get(api_version="apps/v1", kind="Deployment")
        deployments.server_side_apply(
            body={
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "inferproof-test"},
                "spec": {"replicas": 4},
            },
            namespace=NAMESPACE,
            field_manager="somebody",
            force_conflicts=True,
        )
    with pytest.raises(InfrastructureError, match="409"):
        place.deploy(release("two", replicas=1))
