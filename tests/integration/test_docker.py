"""Replicas as containers of a real Docker daemon behind the real HAProxy, from first to last."""

import hashlib
import http.client
import json
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any
from urllib.parse import urlsplit

import docker
import pytest

from docker_daemon import BASE_IMAGE, import_base, running_daemon
from inferproof.core.campaign import Limits
from inferproof.core.errors import InfrastructureError, NotFound
from inferproof.core.places import Cluster
from inferproof.serving.deployers.base import Release, Service
from inferproof.serving.deployers.docker import Docker
from inferproof.serving.engines.base import Plan
from inferproof_remote.serving.balancer import find_haproxy

pytestmark = [pytest.mark.zoo, pytest.mark.timeout(400)]
ENGINE = Path(__file__).parent / "engines" / "contained" / "serve.py"
LIMITS = Limits(memory_mib=256, tmp_mib=16, processes=40)
CLIENTS, PIECES, PAUSE_S = 12, 25, 0.02


@pytest.fixture(scope="module")
def daemon() -> Iterator[str]:
    with running_daemon() as url:
        import_base(url)
        yield url


@pytest.fixture
def place(daemon: str, tmp_path: Path) -> Iterator[Docker]:
    haproxy = find_haproxy()
    if haproxy is None:
        pytest.skip("haproxy is not installed: apt-get install haproxy")
    place = Docker(tmp_path / "state", url=daemon, base_image=BASE_IMAGE, haproxy=str(haproxy))
    yield place
    place.delete("engine")
    place.delete("shop")
    client = docker.DockerClient(base_url=daemon)
    left = client.containers.list(all=True)
    client.close()
    assert left == []


def release(version: str = "one", *, replicas: int = 1, start_s: float = 30) -> Release:
    source = ENGINE.read_text(encoding="utf-8").replace('"one"', repr(version))
    plan = Plan(
        engine="command",
        supervised=True,
        argv=("{python}", "serve.py", "{port}"),
        start_s=start_s,
    )
    service = Service(
        name="engine",
        candidate=hashlib.sha256(source.encode()).hexdigest(),
        plan=plan,
        replicas=replicas,
        limits=LIMITS,
    )
    return Release(service=service, contents={"serve.py": source.encode()})


def ask(url: str, act: str) -> Any:
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        connection.request("GET", act)
        return json.loads(connection.getresponse().read())


@dataclass
class Load:
    """What became of streams: whole, or broken off by which replica, or never begun."""

    netloc: str
    whole: Counter[str] = field(default_factory=Counter[str])
    truncated: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    in_flight: dict[int, str] = field(default_factory=dict[int, str])
    _over: threading.Event = field(default_factory=threading.Event)

    def work(self, client: int) -> None:
        while not self._over.is_set():
            self._stream(client)

    def end(self) -> None:
        self._over.set()

    def _stream(self, client: int) -> None:
        with closing(http.client.HTTPConnection(self.netloc, timeout=30)) as connection:
            try:
                connection.request("POST", "/", body=f"{PIECES} {PAUSE_S}")
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
                return
            if answer.status != 200:
                self.failed.append(f"status {answer.status}")
                return
            replica = answer.headers["X-Replica"]
            self.in_flight[client] = replica
            try:
                whole = answer.read().count(b"data:") == PIECES
            except (OSError, http.client.HTTPException):
                whole = False
            del self.in_flight[client]
            if whole:
                self.whole[f"{replica} {answer.headers['X-Version']}"] += 1
            else:
                self.truncated.append(replica)


@contextmanager
def loaded(url: str) -> Generator[Load]:
    load = Load(urlsplit(url).netloc)
    with ThreadPoolExecutor(CLIENTS) as pool:
        done = [pool.submit(load.work, client) for client in range(CLIENTS)]
        try:
            yield load
        finally:
            load.end()
        for each in done:
            each.result()


def until_whole(load: Load, count: int) -> None:
    deadline = time.monotonic() + 120
    while load.whole.total() < count:
        assert time.monotonic() < deadline, load
        time.sleep(0.05)


def test_a_rolling_update_under_load_loses_no_stream(place: Docker):
    before = place.deploy(release("one", replicas=3))
    assert (before.phase, before.ready) == ("ready", 3)
    url = place.endpoint("engine").url
    with loaded(url) as load:
        until_whole(load, 30)
        after = place.deploy(release("two", replicas=3))
        rolled = load.whole.total()
        until_whole(load, max(330, rolled + 30))
    print(f"{load.whole.total()} whole, {len(load.truncated)} cut, {len(load.failed)} failed")
    assert (load.truncated, load.failed) == ([], [])
    assert (after.phase, after.ready, after.previous) == ("ready", 3, before.version)
    assert place.endpoint("engine").url == url
    assert {name.split()[1] for name in load.whole} == {"one", "two"}


def test_only_the_streams_of_a_killed_replica_are_cut(place: Docker, daemon: str):
    place.deploy(release(replicas=3))
    client = docker.DockerClient(base_url=daemon)
    victim = client.containers.list()[0]
    with loaded(place.endpoint("engine").url) as load:
        until_whole(load, 40)
        victim.kill("SIGKILL")
        at_most = sum(replica == victim.short_id for replica in load.in_flight.values())
        until_whole(load, load.whole.total() + 60)
    client.close()
    print(f"{load.whole.total()} whole, cut: {load.truncated}, failed: {load.failed}")
    assert set(load.truncated) <= {victim.short_id}
    assert len(load.truncated) <= at_most + CLIENTS
    assert load.failed == []
    assert place.status("engine").phase == "degraded"
    mended = place.deploy(release(replicas=3))
    assert (mended.phase, mended.ready) == ("ready", 3)


def test_a_version_that_does_not_serve_leaves_the_one_before_serving(place: Docker):
    good = place.deploy(release("one", replicas=2))
    broken = release("two", replicas=2, start_s=3)
    argv = ("{python}", "-c", "raise SystemExit('no model')")
    plan = broken.service.plan.model_copy(update={"argv": argv})
    bad = Release(
        service=broken.service.model_copy(update={"plan": plan}), contents=broken.contents
    )
    with pytest.raises(InfrastructureError, match="no model"):
        place.deploy(bad)
    assert ask(place.endpoint("engine").url, "/setuid")["uid"] == 65534
    back = place.rollback("engine")
    assert (back.phase, back.ready, back.version) == ("ready", 2, good.version)


def test_the_life_of_a_deployment(place: Docker):
    with pytest.raises(NotFound):
        place.endpoint("engine")
    one = place.deploy(release("one", replicas=1))
    again = place.deploy(release("one", replicas=1))
    assert again == one
    assert place.scale("engine", 2).ready == 2
    two = place.deploy(release("two", replicas=2))
    assert two.previous == one.version
    back = place.rollback("engine")
    assert (back.version, back.previous, back.ready) == (one.version, two.version, 2)
    url = place.endpoint("engine").url
    assert ask(url, "/setuid")["uid"] == 65534
    lines = list(place.logs("engine", since_s=600))
    assert any(line.startswith("[engine-r") and "served" in line for line in lines)
    shop = place.promote("engine", "shop")
    assert (shop.phase, shop.version, shop.ready) == ("ready", one.version, 2)
    assert place.endpoint("shop").url != url
    assert place.scale("engine", 0).phase == "ready"
    assert place.delete("engine").phase == "absent"
    assert place.delete("engine").phase == "absent"
    with pytest.raises(OSError, match="refused"):
        ask(url, "/setuid")


def test_a_replica_is_kept_apart_from_everything(place: Docker, daemon: str):
    place.deploy(release())
    url = place.endpoint("engine").url
    network = ask(url, "/network")
    assert network["interfaces"] == ["lo"]
    assert set(network["reached"]) == {"Network is unreachable"}
    places = ask(url, "/write")
    assert "allowed" not in places.values(), places
    assert places["/x"] == places["/candidate/x"] == "Read-only file system"
    assert places["/run/replica/x"] == ask(url, "/swap")["swap"] == "Read-only file system"
    identity = ask(url, "/setuid")
    assert identity["setuid"] == "Operation not permitted"
    assert (identity["uid"], identity["no_new_privileges"]) == (65534, "1")
    assert int(identity["capabilities"], 16) == int(identity["bounding"], 16) == 0
    seen = ask(url, "/proc")
    assert set(seen["commands"]) <= {"docker-init", "python3", "init"}, seen
    assert "allowed" not in (seen["memory"], seen["keys"])
    assert (seen["mount"], seen["core_bytes"]) == ("refused", 0)
    assert seen["sockets"] == []
    forks = ask(url, "/fork")
    assert forks["forks"] < LIMITS.processes + 8
    assert forks["reason"] == "Resource temporarily unavailable"
    with pytest.raises((OSError, http.client.HTTPException, ValueError)):
        ask(url, "/memory")
    client = docker.DockerClient(base_url=daemon)
    (dead,) = client.containers.list(all=True)
    dead.wait(timeout=60)
    dead.reload()
    client.close()
    assert dead.attrs["State"]["OOMKilled"]


@contextmanager
def registry(folder: Path) -> Generator[str]:
    """Yield the address of an empty registry."""
    program = which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed: apt-get install docker-registry")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = folder / "registry.yml"
    config.write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/images}}}}\n"
        f"http: {{addr: '{address}'}}\n",
        encoding="utf-8",
    )
    with subprocess.Popen([program, "serve", str(config)]) as process:
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    ask(f"http://{address}", "/v2/")
                    break
                except OSError:
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
            yield address
        finally:
            process.terminate()


def test_an_image_is_pushed_to_a_registry_and_named_by_its_digest(place: Docker, tmp_path: Path):
    with registry(tmp_path) as address:
        image = place.push(release(), f"{address}/engines/qwen")
        assert Cluster(namespace="test", image=image).image == image
        digest = image.partition("@")[2]
        found = ask(f"http://{address}", f"/v2/engines/qwen/manifests/{digest}")
        assert found["schemaVersion"] == 2
    with pytest.raises(InfrastructureError, match="did not take the image"):
        place.push(release(), f"{address}/engines/qwen")


def test_an_unknown_base_image_or_daemon_is_told(daemon: str, tmp_path: Path):
    unknown = Docker(tmp_path, url=daemon, base_image="no-such-image", haproxy="haproxy")
    with pytest.raises(InfrastructureError, match="not built on no-such-image"):
        unknown.deploy(release())
    nobody = Docker(tmp_path, url="unix:///nowhere", base_image=BASE_IMAGE, haproxy="haproxy")
    with pytest.raises(InfrastructureError, match="unix:///nowhere failed"):
        nobody.status("engine")
