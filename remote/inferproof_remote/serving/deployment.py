"""Replicas behind one endpoint, from their start to their end."""

import contextlib
import http.client
import time
import urllib.parse
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from inferproof_remote.incidents import BenchError, Incident
from inferproof_remote.serving.balancer import Balancer, Door, HaProxy
from inferproof_remote.serving.cores import shares
from inferproof_remote.serving.plans import Place, Plan
from inferproof_remote.serving.replica import Replica

_STEP_S = 0.02
_LOG_CHARACTERS = 4000
_OUTSIDE_S = 10.0
_MIB = 1 << 20

Arm = Literal["candidate", "baseline"]


class Deployment:
    """N replicas of one engine, each in a sandbox of its own, and what stands in front of them.

    Inside the `with` block `endpoint` answers if `ready_s` is not None. An engine that does not
    start is no error: `incidents` say why. `name` tells the deployments of one job apart. All of
    it dies with the thread that starts or scales it.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        arm: Arm,
        place: Place,
        replicas: int,
        haproxy: Path | None,
        name: str,
    ) -> None:
        self.endpoint = plan.url.rstrip("/") if plan.url else ""
        self.ready_s: float | None = None
        self.arm: Arm = arm
        self.asked = replicas
        self._plan = plan
        self._place = place
        self._haproxy = haproxy
        self._name = name
        self._replicas: list[Replica] = []
        self._gone: list[Replica] = []
        self._late: list[Incident] = []
        self._balancer: Balancer | None = None
        self._started = 0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def sockets(self) -> list[Path]:
        """The socket of each replica that serves: what answers there is that very replica."""
        found = [replica.socket for replica in self._replicas if replica.is_healthy]
        return [path for path in found if path is not None]

    @property
    def is_alive(self) -> bool:
        """Whether there is anything left that could serve."""
        return self._plan.url is not None or not all(one.is_over for one in self._replicas)

    def healthy(self) -> int:
        """Return how many replicas serve now.

        Raises:
            BenchError: the balancer in front of them is gone.
        """
        if self._plan.url is not None:
            return int(_answers(self._plan.url, self._plan.health))
        if self._balancer is not None and not self._balancer.is_alive:
            raise BenchError("the balancer ended; the engines behind it are not to blame")
        return sum(replica.is_healthy for replica in self._replicas)

    def scale(self, replicas: int) -> None:
        """Start or end replicas until this many live; no request in flight is dropped.

        Raises:
            BenchError: there is no balancer that can do it.
        """
        if self._plan.url is not None:
            raise BenchError("an endpoint that runs elsewhere cannot be scaled from here")
        self.asked = replicas
        living = [replica for replica in self._replicas if not replica.is_over]
        for spare in [one for one in self._replicas if one not in living[:replicas]]:
            self._retire(spare)
        self._launch(replicas - len(self._replicas))

    def incidents(self) -> list[Incident]:
        """Return what went wrong with any replica since the start, ended ones included."""
        every = [*self._gone, *self._replicas]
        return [*self._late, *(incident for one in every for incident in one.incidents)]

    def log_tail(self) -> str:
        """Return the end of each replica's log, those with incidents first."""
        every = sorted([*self._replicas, *self._gone], key=lambda one: not one.incidents)
        each = _LOG_CHARACTERS // max(1, len(every))
        return "\n".join(f"[{one.label}] {one.log_tail[-each:].strip()}" for one in every)

    def facts(self, *, restart: int, features: dict[str, bool]) -> dict[str, object]:
        """Return this deployment as the evidence's `DeploymentFacts`."""
        return {
            "arm": self.arm,
            "restart": restart,
            "engine": self._plan.engine,
            "supervised": self._plan.supervised,
            "replicas": self.asked,
            "healthy": self.healthy(),
            "ready_s": self.ready_s,
            "features": features,
            "incidents": [
                {"code": one.code, "call": one.call, "detail": one.detail}
                for one in self.incidents()
            ],
            "log_tail": self.log_tail(),
            **self._usage(),
        }

    def _usage(self) -> dict[str, object]:
        """Return what all replicas used; nothing of an engine that runs elsewhere."""
        used = [one.usage for one in [*self._gone, *self._replicas] if one.usage is not None]
        busiest = [each.busiest_cores for each in used if each.busiest_cores is not None]
        if not used or len(busiest) < len(used):
            return {}
        return {
            "cores_each": len(shares().of_replica(0, self._place.threads)),
            "busiest_cores": max(busiest),
            "cpu_s": sum(each.cpu_s for each in used),
            "peak_memory_mib": sum(each.peak_bytes for each in used) / _MIB,
        }

    def _start(self) -> None:
        began = time.monotonic()
        if self._plan.url is None:
            self._launch(self.asked)
        else:
            self._await_outside()
        if self.healthy() == self.asked:
            self.ready_s = time.monotonic() - began

    def _launch(self, count: int) -> None:
        """Start replicas and put those that come to serve behind the endpoint."""
        if self.asked > 1 and self._haproxy is None:
            raise BenchError(
                f"{self.asked} replicas need a balancer and HAProxy is not installed; "
                "run: apt-get install haproxy"
            )
        fresh = [self._replica() for _ in range(count)]
        self._replicas += fresh
        for replica in fresh:
            replica.start()
        self._await_health(fresh)
        self._admit({one.label: one.socket for one in fresh if one.socket and one.is_healthy})

    def _replica(self) -> Replica:
        number, self._started = self._started, self._started + 1
        held = shares().of_replica(number, self._place.threads)
        return Replica(self._plan, self._place, label=f"{self._name}-r{number}", cores=held)

    def _await_health(self, replicas: list[Replica]) -> None:
        """Wait until each of these serves or has ended, as long as the plan allows."""
        deadline = time.monotonic() + self._plan.start_s
        while waiting := [r for r in replicas if not (r.is_healthy or r.is_over)]:
            if time.monotonic() > deadline:
                self._late += [_late(one, self._plan) for one in waiting]
                return
            time.sleep(_STEP_S)

    def _admit(self, servers: dict[str, Path]) -> None:
        if self._balancer is not None:
            for name, path in servers.items():
                self._balancer.add(name, path)
        elif servers:
            self._balancer = self._opened(servers)
            self.endpoint = f"http://127.0.0.1:{self._balancer.port}"

    def _opened(self, servers: dict[str, Path]) -> Balancer:
        if self._haproxy is None:
            return Door(next(iter(servers.values())))
        work = self._place.work / self._name
        work.mkdir(exist_ok=True)
        check_s = self._place.limit("call_s")
        return HaProxy(
            servers,
            program=self._haproxy,
            work=work,
            health=self._plan.health,
            check_s=check_s,
        )

    def _retire(self, replica: Replica) -> None:
        if self._balancer is not None:
            self._balancer.drop(replica.label)
        replica.close()
        self._replicas.remove(replica)
        self._gone.append(replica)

    def _await_outside(self) -> None:
        deadline = time.monotonic() + self._plan.start_s
        while not self.healthy():
            if time.monotonic() > deadline:
                what = f"{self._plan.url} did not answer {self._plan.health} with 200"
                self._late.append(Incident("not_serving", None, what))
                return
            time.sleep(_STEP_S)

    def _close(self) -> None:
        with contextlib.ExitStack() as stack:
            for replica in self._replicas:
                stack.callback(replica.close)
            if self._balancer is not None:
                stack.callback(self._balancer.close)


def _late(replica: Replica, plan: Plan) -> Incident:
    what = f"replica {replica.label} did not answer {plan.health} with 200 in {plan.start_s:g} s"
    return Incident("not_serving", None, f"{what}: {replica.last_answer}")


def _answers(url: str, health: str) -> bool:
    """Whether an engine that runs elsewhere answers its health path with 200."""
    parts = urllib.parse.urlsplit(url)
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    connection = kinds[parts.scheme](parts.netloc, timeout=_OUTSIDE_S)
    with contextlib.closing(connection):
        try:
            connection.request("GET", parts.path.rstrip("/") + health)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
