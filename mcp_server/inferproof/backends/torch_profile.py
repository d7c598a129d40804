"""Profile a candidate on a practice shape: the job and its result; never judged."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from inferproof.backends.base import Against, Backend, Work, inputs, parse_as, subject
from inferproof.core.evidence import ProfileFacts
from inferproof.hosts.base import JobRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOrder:
    """What to profile: `dims` is a practice shape, the largest one if empty."""

    threads: int
    calls: int = 20
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    artefacts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def request(work: Work, against: Against, order: ProfileOrder) -> JobRequest:
    """Return the job that profiles the candidate."""
    built = {name: f"in/build/{name}" for name in order.artefacts}
    return JobRequest(
        job_id=work.job_id,
        verb="profile",
        wall_s=work.wall_s,
        spec={
            **subject(work, against),
            "threads": order.threads,
            "calls": order.calls,
            "dims": dict(order.dims),
            "build_cache": built or None,
        },
        inputs=inputs(work, against, order.artefacts),
    )


def parse(result: bytes) -> ProfileFacts:
    """Return a profile job's result. Raises InfrastructureError if it has another form."""
    return parse_as(ProfileFacts, result, what="profile")


BACKEND = Backend(kind="profile", slot="profile", parse=parse)
