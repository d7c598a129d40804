"""Deploy an engine as replicas behind one endpoint: the job, its result, and how it is scaled."""

from collections.abc import Mapping
from dataclasses import dataclass

from inferproof.backends.base import Backend, below, parse_as
from inferproof.core.campaign import Limits, Target
from inferproof.core.candidate import Candidate
from inferproof.core.canonical import Json
from inferproof.core.deploy_facts import DeployFacts
from inferproof.hosts.base import JobRequest

CONTROL_FILE = "control.json"
STATE_FILE = "deployment.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOrder:
    """What to deploy. `plan` says how each replica is started."""

    job_id: str
    wall_s: float
    candidate: Candidate
    contents: Mapping[str, bytes]
    limits: Limits
    target: Target
    threads: int
    model_name: str
    model_path: str
    plan: Mapping[str, Json]
    replicas: int


def request(order: DeployOrder) -> JobRequest:
    """Return the job that serves until it is cancelled or its wall clock is up."""
    return JobRequest(
        job_id=order.job_id,
        verb="deploy",
        wall_s=order.wall_s,
        spec={
            "candidate_digest": order.candidate.digest,
            "candidate_files": dict(order.candidate.files),
            "limits": order.limits.model_dump(mode="json"),
            "threads": order.threads,
            "model": {"name": order.model_name, "path": order.model_path},
            "tools": {"haproxy": order.target.haproxy},
            "plan": dict(order.plan),
            "replicas": order.replicas,
        },
        inputs=below("candidate", order.contents),
    )


def control(replicas: int) -> dict[str, Json]:
    """Return what a running deployment is told in order to have this many replicas."""
    return {"replicas": replicas}


def parse(result: bytes) -> DeployFacts:
    """Return a deployment's facts. Raises InfrastructureError if they have another form."""
    return parse_as(DeployFacts, result, what="deploy")


BACKEND = Backend(kind="deploy", slot="deploy", parse=parse)
