"""Run one command of the agent's in the sandbox: the job and its result; never judged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferproof.backends.base import Backend, below, parse_as
from inferproof.core.campaign import Limits
from inferproof.core.evidence import RunFacts
from inferproof.hosts.base import JobRequest

_GRACE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOrder:
    """What to run. `contents` is a candidate's files, or nothing for an empty folder."""

    job_id: str
    argv: Sequence[str]
    timeout_s: float
    limits: Limits
    contents: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def request(order: CommandOrder) -> JobRequest:
    """Return the job that runs the command; the sandbox stops it before the job's own clock."""
    return JobRequest(
        job_id=order.job_id,
        verb="run",
        wall_s=order.timeout_s + _GRACE_S,
        spec={
            "argv": list(order.argv),
            "timeout_s": order.timeout_s,
            "limits": order.limits.model_dump(mode="json"),
        },
        inputs=below("candidate", order.contents),
    )


def parse(result: bytes) -> RunFacts:
    """Return a command's result. Raises InfrastructureError if it has another form."""
    return parse_as(RunFacts, result, what="run")


BACKEND = Backend(kind="run", slot="run", parse=parse)
