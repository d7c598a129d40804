"""Grade a candidate against a sealed contract: the job and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from inferproof.backends.base import Against, Backend, Work, inputs, parse_as, subject
from inferproof.core.evidence import GradeFacts
from inferproof.core.values import Purpose
from inferproof.hosts.base import JobRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class GradeOrder:
    """How to grade. `artefacts` of an earlier build of these sources spare the compiler.

    Each timed shape has so many `rounds`, or as many as the contract plans. Device code that is
    graded also runs under compute-sanitizer, unless `sanitize` is false.
    """

    purpose: Purpose
    threads: int
    arm: bool
    timing: bool = True
    sanitize: bool = True
    rounds: int | None = None
    shapes_scale: Literal["full", "zoo"] = "full"
    artefacts: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


def request(work: Work, against: Against, order: GradeOrder) -> JobRequest:
    """Return the job that grades the candidate; only sealed and snapshotted bytes travel."""
    built = {name: f"in/build/{name}" for name in order.artefacts}
    return JobRequest(
        job_id=work.job_id,
        verb="grade",
        wall_s=work.wall_s,
        spec={
            **subject(work, against),
            "purpose": order.purpose.value,
            "threads": order.threads,
            "arm": order.arm,
            "timing": order.timing,
            "shapes_scale": order.shapes_scale,
            "sanitize": order.sanitize and order.purpose is Purpose.GRADED,
            "rounds": order.rounds,
            "build_cache": built or None,
        },
        inputs=inputs(work, against, order.artefacts),
    )


def parse(result: bytes) -> GradeFacts:
    """Return a grade job's result. Raises InfrastructureError if it has another form."""
    return parse_as(GradeFacts, result, what="grade")


BACKEND = Backend(kind="grade", slot="grade", parse=parse)
