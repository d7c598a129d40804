"""What is rendered for each kind of place, and what is wrong with it before anybody is asked."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferproof.core.errors import InfrastructureError, UsageError
from inferproof.core.places import Cluster
from inferproof.serving.deployers import kubernetes
from inferproof.serving.deployers.base import Release, Service
from inferproof.serving.deployers.docker import Docker
from inferproof.serving.deployers.haproxy import config_text
from inferproof.serving.deployers.kubernetes import Kubernetes
from inferproof.serving.deployers.manifests import noted, parsed, standing
from inferproof.serving.deployers.replicas import sandbox
from inferproof.serving.deployers.truss import Truss
from inferproof.serving.engines.base import Plan

IMAGE = f"registry.example/engines/qwen@sha256:{'a' * 64}"
FILES = {"candidate.yaml": b"x: 1\n", "serve.py": b"print()\n"}
SERVICE = Service(
    name="qwen",
    candidate="c" * 64,
    plan=Plan(
        engine="command",
        supervised=True,
        argv=("{python}", "serve.py", "--port", "{port}", "--model", "{model}"),
        env={"QUOTED": 'a "b" \\ {{ c }} $(d)\n- e: f'},
    ),
    replicas=3,
    gpus_each=1,
    model="weights",
)
RELEASE = Release(service=SERVICE, contents=FILES)
CLUSTER = Kubernetes(Cluster(namespace="test", image=IMAGE, pull_secret="pull"))
TRUSS = Truss(base_image="registry.example/python:3.11", accelerator="H100")
Change = Callable[[dict[str, Any]], object]


def manifests() -> list[dict[str, Any]]:
    return parsed(CLUSTER.render(RELEASE))


def problems(change: Change) -> tuple[str, ...]:
    """Return what is wrong after a change of the Deployment."""
    whole = manifests()
    change(whole[0])
    return CLUSTER.validate({"deployment.yaml": yaml.safe_dump_all(whole).encode()})


def test_a_version_is_all_that_a_replica_is_and_not_how_many_or_by_what_name():
    assert SERVICE.model_copy(update={"replicas": 9, "name": "other"}).version == SERVICE.version
    for change in ({"candidate": "d" * 64}, {"threads": 2}, {"model": "other"}):
        assert SERVICE.model_copy(update=change).version != SERVICE.version


@pytest.mark.parametrize("name", ["", "-x", "x-", "X", "a.b", "a/b", "$(x)", "x" * 41, "a\n"])
def test_a_name_that_is_no_label_is_refused(name: str):
    with pytest.raises(ValueError, match="name"):
        Service(name=name, candidate="c" * 64, plan=SERVICE.plan)


def test_manifests_are_valid_and_say_what_was_asked():
    files = CLUSTER.render(RELEASE)
    assert CLUSTER.validate(files) == ()
    deployment, service, policy = parsed(files)
    pod = deployment["spec"]["template"]["spec"]
    engine, door = pod["containers"]
    assert deployment["spec"]["replicas"] == 3
    assert engine["image"] == door["image"] == IMAGE
    assert engine["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert {"name": "QUOTED", "value": SERVICE.plan.env["QUOTED"]} in engine["env"]
    assert engine["command"][-5:] == ["serve.py", "--port", "8000", "--model", "/model"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert (service["kind"], policy["spec"]["egress"]) == ("Service", [])


def test_a_pod_is_kept_apart():
    pod = manifests()[0]["spec"]["template"]["spec"]
    assert not pod["automountServiceAccountToken"]
    assert pod["securityContext"]["runAsNonRoot"]
    for container in pod["containers"]:
        context = container["securityContext"]
        assert not context["allowPrivilegeEscalation"]
        assert context["readOnlyRootFilesystem"]
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_a_full_pool_of_gpus_rolls_without_a_spare_and_any_other_with_one():
    assert manifests()[0]["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0
    cpu = Release(service=SERVICE.model_copy(update={"gpus_each": 0}), contents=FILES)
    files = CLUSTER.render(cpu)
    assert CLUSTER.validate(files) == ()
    roll = parsed(files)[0]["spec"]["strategy"]["rollingUpdate"]
    assert roll == {"maxSurge": 1, "maxUnavailable": 0}


WRONG: dict[str, tuple[Change, str]] = {
    "a key that is misspelt": (lambda d: d["spec"].update(replica=1), "replica"),
    "a number that is a word": (lambda d: d["spec"].update(replicas="three"), "replicas"),
    "an unknown kind": (lambda d: d.update(kind="Deploiment"), "no kind"),
    "a selector of others": (
        lambda d: d["spec"]["selector"].update(matchLabels={"app": "x"}),
        "selector",
    ),
    "a surge on a full pool": (lambda d: _roll(d, 1, 0), "for ever"),
    "nothing may be replaced": (lambda d: _roll(d, 0, 0), "nothing could be replaced"),
    "an image by its tag": (lambda d: _engine(d).update(image="a/b:latest"), "digest"),
    "a port without protocol": (
        lambda d: d["spec"]["template"]["spec"]["containers"][1]["ports"][0].pop("protocol"),
        "no protocol",
    ),
    "fewer GPUs than its limit": (
        lambda d: _engine(d)["resources"]["requests"].pop("nvidia.com/gpu"),
        "GPUs",
    ),
}


def _roll(deployment: dict[str, Any], surge: int, unavailable: int) -> None:
    roll = {"maxSurge": surge, "maxUnavailable": unavailable}
    deployment["spec"]["strategy"].update(rollingUpdate=roll)


def _engine(deployment: dict[str, Any]) -> dict[str, Any]:
    return deployment["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(("change", "word"), WRONG.values(), ids=WRONG)
def test_what_a_cluster_would_refuse_or_never_finish_is_found(change: Change, word: str):
    assert word in "; ".join(problems(change))


@pytest.mark.parametrize("image", ["a/b:latest", "a/b", "", f"A/b@sha256:{'a' * 64}", "x\n"])
def test_an_image_is_named_by_its_digest(image: str):
    with pytest.raises(ValueError, match="image"):
        Cluster(namespace="test", image=image)


def test_what_a_deployment_is_and_was_is_read_back_from_it():
    found = {**manifests()[0]}
    found["metadata"]["generation"] = 4
    releases = noted(found)
    assert releases is not None
    assert releases.now == SERVICE
    whole = {"observedGeneration": 4, "replicas": 3, "readyReplicas": 3, "updatedReplicas": 3}
    assert standing({**found, "status": whole}, releases).phase == "ready"
    for change in ({"observedGeneration": 3}, {"replicas": 4}, {"updatedReplicas": 2}):
        assert standing({**found, "status": {**whole, **change}}, releases).phase == "starting"
    ending = {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    told = standing({**found, "metadata": ending, "status": whole}, releases)
    assert (told.phase, told.reason) == ("degraded", "it is being deleted")
    bad = [{"type": "Progressing", "status": "False", "message": "exceeded its deadline"}]
    told = standing({**found, "status": {**whole, "readyReplicas": 1, "conditions": bad}}, releases)
    assert (told.phase, told.ready, told.reason) == ("degraded", 1, "exceeded its deadline")
    for foreign in (None, {}, {"metadata": {"annotations": {"inferproof/releases": "{}"}}}):
        assert noted(foreign) is None


def test_an_unreachable_cluster_is_told(tmp_path: Path):
    place = Cluster(namespace="test", image=IMAGE, kubeconfig=str(tmp_path / "none"))
    with pytest.raises(InfrastructureError, match="cannot be reached"):
        Kubernetes(place).status("qwen")


def test_a_cluster_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kubernetes, "_ANSWERS_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        config = {
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": "x"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        place = Cluster(namespace="test", image=IMAGE, kubeconfig=str(tmp_path / "config"))
        with pytest.raises(InfrastructureError, match=r"cannot be reached.*[Tt]imed out"):
            Kubernetes(place).status("qwen")


@pytest.mark.parametrize("act", [CLUSTER.status, CLUSTER.delete, CLUSTER.endpoint])
def test_without_the_clusters_client_it_is_told_what_to_install(
    act: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "kubernetes.client.exceptions", None)
    with pytest.raises(UsageError) as told:
        act("qwen")
    assert told.value.hint == "run: pip install 'inferproof[cluster]'"


def test_a_truss_is_valid_and_starts_the_engine_with_its_own_files():
    files = TRUSS.render(RELEASE)
    assert TRUSS.validate(files) == ()
    config = yaml.safe_load(files["config.yaml"])
    assert config["resources"]["accelerator"] == "H100:1"
    assert files["data/serve.py"] == FILES["serve.py"]
    compile(files["packages/start.py"], "start.py", "exec")


TRUSS_WRONG: dict[str, tuple[Change, str]] = {
    "an unknown key": (lambda c: c.update(modelname="x"), "modelname"),
    "an empty image": (lambda c: c.update(base_image={"image": ""}), "base_image.image"),
    "a port that is a word": (
        lambda c: c["docker_server"].update(server_port="http"),
        "server_port",
    ),
    "the proxy's own port": (lambda c: c["docker_server"].update(server_port=8080), "taken"),
    "no predict endpoint": (
        lambda c: c["docker_server"].pop("predict_endpoint"),
        "predict_endpoint",
    ),
    "an unknown accelerator": (lambda c: c["resources"].update(accelerator="X9:1"), "X9"),
    "a GPU without a name": (lambda c: c["resources"].pop("accelerator"), "accelerator"),
}


@pytest.mark.parametrize(("change", "word"), TRUSS_WRONG.values(), ids=TRUSS_WRONG)
def test_what_baseten_would_refuse_or_silently_ignore_is_found(change: Change, word: str):
    files = dict(TRUSS.render(RELEASE))
    config = yaml.safe_load(files["config.yaml"])
    change(config)
    files["config.yaml"] = json.dumps(config).encode()
    assert word in "; ".join(TRUSS.validate(files))


def test_a_truss_without_what_it_starts_is_refused():
    files = dict(TRUSS.render(RELEASE))
    del files["packages/start.py"]
    assert TRUSS.validate(files) == ("packages/start.py is missing",)


def test_a_truss_is_pushed_by_a_person():
    assert not TRUSS.capabilities.deploys
    with pytest.raises(UsageError, match="runs hosted"):
        TRUSS.deploy(RELEASE)


def test_an_image_is_built_of_the_snapshot_and_runs_nothing_meanwhile(tmp_path: Path):
    place = Docker(tmp_path, url="unix:///none", base_image="base:1", haproxy="haproxy")
    files = dict(place.render(RELEASE))
    assert place.validate(files) == ()
    assert files["candidate/serve.py"] == FILES["serve.py"]
    recipe = files["Dockerfile"]
    files["Dockerfile"] = recipe + b"RUN curl evil.example\n"
    assert place.validate(files) == ("the image runs or fetches something while it is built",)
    files["Dockerfile"] = recipe.replace(b"base:1", b"other")
    assert place.validate(files) == ("the image is not built on base:1",)


def test_containers_that_would_hold_gpus_without_a_lease_are_refused(tmp_path: Path):
    place = Docker(tmp_path, url="unix:///none", base_image="base:1", haproxy="haproxy")
    assert not place.capabilities.gpus
    with pytest.raises(UsageError, match="hold no lease") as told:
        place.deploy(RELEASE)
    assert "kind process" in told.value.hint
    assert list(tmp_path.iterdir()) == []


def test_every_flag_of_a_container_is_set():
    flags = sandbox(SERVICE)
    assert flags["network_mode"] == "none"
    assert flags["read_only"]
    assert flags["init"]
    assert flags["cap_drop"] == ["ALL"]
    assert flags["security_opt"] == ["no-new-privileges:true"]
    assert flags["user"] == "65534:65534"
    assert flags["mem_limit"] == flags["memswap_limit"]
    assert flags["pids_limit"] > 0
    assert flags["log_config"].config["max-size"] == "32m"


def test_a_health_path_stays_one_word_of_the_balancers_language():
    text = config_text({}, port=1, health="/h' reqadd x", check_s=1)
    assert "meth GET uri '/h'\\'' reqadd x' ver" in text
