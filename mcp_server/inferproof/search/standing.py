"""Where the search of one contract stands, from what is on record; pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from inferproof.core.evidence import Evidence
from inferproof.core.sealed import SealedContract
from inferproof.core.service import Search
from inferproof.core.space import Space, choices_of
from inferproof.core.values import Digest
from inferproof.search.judging import Tried, best_of, judged_round

Phase = Literal["explore", "confirm", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a search: its evidence, what came of each configuration, how long it took."""

    evidence: Digest
    tried: tuple[Tried, ...]
    seconds: float


def job_of(sealed: SealedContract, evidence: Evidence, stored: Digest) -> Job:
    """Return a job's evidence, judged."""
    return Job(
        evidence=stored,
        tried=judged_round(sealed, evidence, stored),
        seconds=evidence.search.seconds if evidence.search else 0.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """All that was tried, in the order of the record; `tuned` once the best was confirmed.

    `evidence` is that of the last job. Without `tuned`, a search that is done says that the
    contract's own options are as good as any that were tried.
    """

    contract: str
    asked: int
    phase: Phase
    explored: tuple[Tried, ...]
    confirmed: tuple[Tried, ...]
    tuned: Tried | None
    seconds: float
    evidence: Digest | None

    @property
    def invalid(self) -> tuple[Tried, ...]:
        """The configurations that a gate refused."""
        tried = (*self.explored, *self.confirmed)
        return tuple(each for each in tried if each.counts and each.fault)

    @property
    def counted(self) -> int:
        """How many configurations have been tried; what the bench failed at is none."""
        return sum(each.counts for each in self.explored or self.confirmed)

    @property
    def lead(self) -> tuple[Tried, ...]:
        """The best configurations so far, not yet confirmed."""
        return best_of(self.explored, 3)


def standing(contract: str, search: Search, space: Space, jobs: Sequence[Job]) -> Standing:
    """Return where a search stands after these jobs, oldest first.

    It goes on to confirm when its trials or its time are spent, or all of the space was tried; at
    once, where all that it may try can be finalists.
    """
    explored = tuple(each for job in jobs for each in job.tried if each.stage == "explore")
    confirmed = _newest([job.tried for job in jobs])
    seconds = sum(job.seconds for job in jobs if any(each.counts for each in job.tried))
    counted = sum(each.counts for each in explored)
    every = choices_of(space, search.trials + 1)
    asked = search.trials if every is None else min(search.trials, len(every) - 1)
    is_over = counted >= asked or seconds >= search.wall_s
    phase: Phase = "explore"
    if any(each.counts for each in confirmed) or (is_over and not best_of(explored, 1)):
        phase = "done"
    elif is_over or (asked <= search.finalists and not explored):
        phase = "confirm"
    return Standing(
        contract=contract,
        asked=asked,
        phase=phase,
        explored=explored,
        confirmed=confirmed,
        tuned=_tuned(confirmed),
        seconds=seconds,
        evidence=jobs[-1].evidence if jobs else None,
    )


def _newest(rounds: Sequence[tuple[Tried, ...]]) -> tuple[Tried, ...]:
    """Return what the last confirming job found."""
    found = [each for each in rounds if each and each[0].stage == "confirm"]
    return found[-1] if found else ()


def _tuned(confirmed: Sequence[Tried]) -> Tried | None:
    """Return the best whose whole interval beats default: what is not proved is no bar."""
    return next((each for each in best_of(confirmed, len(confirmed)) if each.low > 1), None)
