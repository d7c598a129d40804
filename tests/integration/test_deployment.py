"""Replicas in real sandboxes behind the real HAProxy: who serves, who fails, what is left."""

import http.client
import re
import shutil
import socketserver
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from inferproof_remote.benches import describe
from inferproof_remote.incidents import BenchError
from inferproof_remote.serving.balancer import find_haproxy
from inferproof_remote.serving.deployment import Deployment
from inferproof_remote.serving.plans import Place, Plan

pytestmark = pytest.mark.integration
ENGINES = Path(__file__).parent / "engines"
LIMITS: dict[str, object] = {"memory_mib": 512, "tmp_mib": 8, "processes": 40, "call_s": 2}


@pytest.fixture
def work() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="inferproof-test-"))
    folder.chmod(0o755)
    yield folder
    left = [path.name for path in folder.iterdir() if "-r" in path.name]
    shutil.rmtree(folder)
    assert left == [], "a replica's folder outlived it"


def deployment(
    work: Path,
    *start: str,
    replicas: int = 1,
    start_s: float = 30,
    haproxy: Path | None = find_haproxy(),  # noqa: B008 (this machine's does not change)
    limits: dict[str, object] = LIMITS,
) -> Deployment:
    plan = Plan(
        engine="command",
        supervised=True,
        argv=start or ("{python}", "serve.py", "{port}"),
        env={},
        health="/health",
        url=None,
        start_s=start_s,
        trusted=False,
    )
    model = work / "model"
    model.mkdir()
    place = Place(candidate=ENGINES / "plain", model=model, limits=limits, threads=1, work=work)
    return Deployment(
        plan, arm="candidate", place=place, replicas=replicas, haproxy=haproxy, name="x"
    )


def get(endpoint: str, path: str, timeout_s: float = 20) -> tuple[int, str]:
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def stream(endpoint: str, pieces: int, pause_s: float) -> list[float]:
    """Return when each piece of a stream came, in seconds since it was asked for."""
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=60)
    began = time.monotonic()
    connection.request("POST", "/stream", f"{pieces} {pause_s}")
    answer = connection.getresponse()
    came: list[float] = []
    while line := answer.readline():
        if line.startswith(b"data:"):
            came.append(time.monotonic() - began)
    connection.close()
    return came


def until(condition: Callable[[], object], within_s: float = 20) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def codes(running: Deployment) -> list[str]:
    return [incident.code for incident in running.incidents()]


def test_each_replica_serves_from_the_candidates_folder(work: Path):
    with deployment(work, replicas=2) as running:
        assert running.ready_s is not None
        assert running.healthy() == 2
        assert len(running.sockets) == 2
        for _ in range(4):
            status, said = get(running.endpoint, "/who")
            assert status == 200
            assert said.endswith(str(ENGINES / "plain"))
        assert running.incidents() == []


def test_a_stream_is_passed_on_as_it_comes(work: Path):
    with deployment(work) as running:
        came = stream(running.endpoint, 5, 0.3)
    assert len(came) == 5
    assert all(later - earlier > 0.1 for earlier, later in pairwise(came))


def test_one_replica_needs_no_haproxy(work: Path):
    with deployment(work, haproxy=None) as running:
        assert get(running.endpoint, "/who")[0] == 200
        assert len(stream(running.endpoint, 3, 0.05)) == 3
        with pytest.raises(BenchError, match="apt-get install haproxy"):
            running.scale(2)


def test_several_replicas_without_haproxy_are_a_failure_of_the_bench(work: Path):
    with (
        pytest.raises(BenchError, match="apt-get install haproxy"),
        deployment(work, replicas=2, haproxy=None),
    ):
        pass


def test_a_replica_that_dies_is_named_and_the_others_serve(work: Path):
    with deployment(work, replicas=2) as running:
        assert get(running.endpoint, "/crash")[0] == 502
        assert until(lambda: running.healthy() == 1)
        (incident,) = running.incidents()
        assert incident.code == "crashed"
        assert "SIGSEGV" in incident.detail
        assert [get(running.endpoint, "/who")[0] for _ in range(8)] == [200] * 8
        running.scale(2)
        assert running.healthy() == 2
        assert codes(running) == ["crashed"]


def test_an_exit_is_told_with_its_code_and_last_words(work: Path):
    with deployment(work) as running:
        assert get(running.endpoint, "/leave")[0] == 502
        assert until(running.incidents)
        (incident,) = running.incidents()
        assert "exit code 3" in incident.detail
        assert "I have had enough" in incident.detail
        assert "I have had enough" in running.log_tail()
        assert not running.is_alive


def test_an_engine_that_cannot_start_is_an_incident_not_an_error(work: Path):
    with deployment(work, "/no/such/program") as running:
        assert running.ready_s is None
        assert codes(running) == ["crashed"]
        assert "/no/such/program" in running.log_tail()


def test_an_engine_that_never_answers_is_not_serving(work: Path):
    with deployment(work, "sleep", "100", start_s=1.0) as running:
        assert running.ready_s is None
        assert running.endpoint == ""
        assert codes(running) == ["not_serving"]


def test_an_engine_that_hangs_is_named_and_the_others_serve(work: Path):
    with deployment(work, replicas=2) as running:
        with pytest.raises(TimeoutError):
            get(running.endpoint, "/hang", timeout_s=1)
        assert until(lambda: codes(running) == ["timed_out"])
        assert running.healthy() == 1
        assert until(lambda: [get(running.endpoint, "/who")[0] for _ in range(4)] == [200] * 4)


def test_an_engines_own_errors_reach_the_caller(work: Path):
    with deployment(work) as running:
        found = Counter(get(running.endpoint, "/quarter")[0] for _ in range(40))
        assert found == {200: 30, 500: 10}
        assert running.healthy() == 1
        assert running.incidents() == []


def test_an_engine_that_ends_connections_as_it_likes_loses_no_request(work: Path):
    with deployment(work, replicas=2) as running:
        caller = http.client.HTTPConnection(running.endpoint.removeprefix("http://"), timeout=20)
        for _ in range(300):
            caller.request("GET", "/unsaid-end")
            answer = caller.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)
        caller.close()


def test_a_full_disk_is_the_engines_own_doing(work: Path):
    with deployment(work) as running:
        get(running.endpoint, "/fill")
        assert until(lambda: codes(running) == ["disk_exceeded"])
        assert running.healthy() == 0


def test_memory_beyond_the_limit_is_named(work: Path):
    eater = "x = [bytearray(1 << 20) for _ in range(4000)]"
    with deployment(work, "{python}", "-c", eater) as running:
        assert codes(running) == ["memory_exceeded"]


def test_scaling_drops_no_request_in_flight(work: Path):
    with deployment(work, replicas=1) as running, ThreadPoolExecutor(8) as pool:
        first = [pool.submit(stream, running.endpoint, 10, 0.2) for _ in range(4)]
        running.scale(3)
        assert running.healthy() == 3
        later = [pool.submit(stream, running.endpoint, 10, 0.1) for _ in range(4)]
        running.scale(1)
        assert running.healthy() == 1
        assert [len(found.result()) for found in (*first, *later)] == [10] * 8
        assert get(running.endpoint, "/who")[0] == 200
        assert running.incidents() == []


def test_two_deployments_share_no_port_and_no_replica(work: Path):
    other = work / "other"
    other.mkdir()
    with deployment(work) as one, deployment(other) as two:
        assert one.endpoint != two.endpoint
        assert not set(one.sockets) & set(two.sockets)
        assert {get(each.endpoint, "/who")[0] for each in (one, two)} == {200}


@pytest.mark.skipif(describe().separation == "shared-account", reason="it sees the whole disk")
@pytest.mark.zoo
def test_an_engine_can_call_no_socket_but_its_own(work: Path):
    """Neither another replica's, nor one of the job's own folder, nor one beside the model."""
    (work / "load").mkdir()
    two = deployment(work, replicas=2)
    quiet = socketserver.BaseRequestHandler
    with (
        socketserver.UnixStreamServer(str(work / "load" / "s"), quiet),
        socketserver.UnixStreamServer(str(work / "model" / "s"), quiet),
        two as running,
    ):
        (work / "model" / "s").chmod(0o777)
        told = {get(running.endpoint, "/sockets")[1] for _ in range(4)}
    assert len(told) == 2, "both replicas were asked"
    for seen in told:
        assert re.fullmatch(r"/.*/x-r[01]-[0-9a-f]+/replica\.sock answered", seen), seen


def test_a_socket_put_in_the_engines_place_leads_nowhere(work: Path):
    """A candidate swaps its socket for a link to a process outside: callers still reach itself."""

    class Outside(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\noutside")

    path = str(work / "outside.sock")
    with socketserver.ThreadingUnixStreamServer(path, Outside) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with deployment(work, "{python}", "serve.py", "{port}", path) as running:
                status, swapped = get(running.endpoint, "/swap")
                assert status == 200
                assert swapped.endswith("replica.sock")
                for _ in range(5):
                    assert "outside" not in get(running.endpoint, "/who")[1]
        finally:
            server.shutdown()
