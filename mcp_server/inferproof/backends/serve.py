"""Hold an engine against the reference and put it under load: the job and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferproof.backends.base import Backend, below, parse_as
from inferproof.core.campaign import Limits, Target
from inferproof.core.candidate import Candidate
from inferproof.core.canonical import Json
from inferproof.core.sealed import SealedContract
from inferproof.core.service import Traffic
from inferproof.core.serving_facts import BarFacts, ServeFacts, Stage
from inferproof.core.values import Purpose
from inferproof.hosts.base import JobRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOrder:
    """What to measure of an engine. `plans` says how each arm's replicas are started."""

    job_id: str
    wall_s: float
    purpose: Purpose
    stages: tuple[Stage, ...]
    candidate: Candidate
    contents: Mapping[str, bytes]
    sealed: SealedContract
    contract_contents: Mapping[str, bytes]
    limits: Limits
    target: Target
    threads: int
    model_name: str
    model_path: str
    plans: Mapping[str, dict[str, Json]]
    replicas: int
    restarts: int
    arm: bool
    traffic: Sequence[Traffic] = field(default=())
    bar: BarFacts | None = None


def request(order: ServeOrder) -> JobRequest:
    """Return the job that measures the engine; only sealed and snapshotted bytes travel."""
    target = order.target
    return JobRequest(
        job_id=order.job_id,
        verb="serve",
        wall_s=order.wall_s,
        spec={
            "purpose": order.purpose.value,
            "stages": list(order.stages),
            "manifest": order.candidate.manifest.model_dump(mode="json"),
            "candidate_digest": order.candidate.digest,
            "candidate_files": dict(order.candidate.files),
            "contract": order.sealed.contract.model_dump(mode="json"),
            "contract_digest": order.sealed.digest,
            "contract_files": dict(order.sealed.files),
            "limits": order.limits.model_dump(mode="json"),
            "threads": order.threads,
            "model": {"name": order.model_name, "path": order.model_path},
            "tools": {
                "aiperf": target.aiperf,
                "haproxy": target.haproxy,
                "lm_eval": target.lm_eval,
            },
            "plans": dict(order.plans),
            "replicas": order.replicas,
            "restarts": order.restarts,
            "traffic": [
                step.model_dump(mode="json") for shape in order.traffic for step in shape.steps
            ],
            "arm": order.arm,
            "bar": order.bar.model_dump(mode="json") if order.bar else None,
        },
        inputs=below("candidate", order.contents) | below("contract", order.contract_contents),
    )


def parse(result: bytes) -> ServeFacts:
    """Return a serve job's result. Raises InfrastructureError if it has another form."""
    return parse_as(ServeFacts, result, what="serve")


BACKEND = Backend(kind="serve", slot="serve", parse=parse)
