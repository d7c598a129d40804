"""What a candidate did, or the bench saw, that decides without numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Incident:
    """One such event; `code` is a value of the server's list of reasons."""

    code: str
    call: int | None
    detail: str


class BenchError(Exception):
    """The machine failed, not the candidate; the job ends as an infrastructure failure."""
