"""Try configurations of a baseline engine: the job and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferproof.backends.base import Backend, below, parse_as
from inferproof.core.campaign import Limits, Target
from inferproof.core.canonical import Json
from inferproof.core.sealed import SealedContract
from inferproof.core.search_facts import SearchFacts, Stage
from inferproof.core.traffic import Traffic
from inferproof.hosts.base import JobRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """One configuration and how it is started; number 0 is the contract's own."""

    number: int
    options: Mapping[str, Json]
    plan: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOrder:
    """Which configurations to try. After `until_s` seconds no further one is started."""

    job_id: str
    wall_s: float
    stage: Stage
    sealed: SealedContract
    contract_contents: Mapping[str, bytes]
    manifest: Mapping[str, Json]
    limits: Limits
    target: Target
    threads: int
    model_name: str
    model_path: str
    trials: Sequence[PlannedTrial]
    restarts: int
    traffic: Sequence[Traffic]
    until_s: float | None


def request(order: SearchOrder) -> JobRequest:
    """Return the job that measures the configurations, one start after another."""
    target = order.target
    return JobRequest(
        job_id=order.job_id,
        verb="search",
        wall_s=order.wall_s,
        spec={
            "stage": order.stage,
            "until_s": order.until_s,
            "stages": ["fidelity", "load"],
            "manifest": dict(order.manifest),
            "contract": order.sealed.contract.model_dump(mode="json"),
            "contract_digest": order.sealed.digest,
            "contract_files": dict(order.sealed.files),
            "limits": order.limits.model_dump(mode="json"),
            "threads": order.threads,
            "model": {"name": order.model_name, "path": order.model_path},
            "tools": {"aiperf": target.aiperf, "haproxy": target.haproxy},
            "plans": {},
            "trials": [
                {"number": t.number, "options": dict(t.options), "plan": dict(t.plan)}
                for t in order.trials
            ],
            "replicas": 1,
            "restarts": order.restarts,
            "traffic": [
                step.model_dump(mode="json") for shape in order.traffic for step in shape.steps
            ],
        },
        inputs=below("contract", order.contract_contents),
    )


def parse(result: bytes) -> SearchFacts:
    """Return a search job's result. Raises InfrastructureError if it has another form."""
    return parse_as(SearchFacts, result, what="search")


BACKEND = Backend(kind="search", slot="search", parse=parse)
