"""Where the search of one contract stands, from what is on record; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from inferproof.core.evidence import Evidence
from inferproof.core.sealed import SealedContract
from inferproof.core.service import Search
from inferproof.core.space import Setting, Space, choices_of
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

    `confirmed` is what the newest job that says something says of each finalist; `pending` are the
    finalists of which no job has said anything yet. `evidence` is that of the last job. Without
    `tuned`, a search that is done says that the contract's own options are as good as any that were
    tried.
    """

    contract: str
    asked: int
    phase: Phase
    explored: tuple[Tried, ...]
    confirmed: tuple[Tried, ...]
    pending: tuple[Mapping[str, Setting], ...]
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
    once, where all that it may try can be finalists. It is done once every finalist is confirmed or
    refused: one that noise spoilt might be the bar.
    """
    explored = tuple(each for job in jobs for each in job.tried if each.stage == "explore")
    confirmed = _newest([each for job in jobs for each in job.tried if each.stage == "confirm"])
    finalists = [*best_of(explored, search.finalists), *confirmed]
    said = [each.settings for each in confirmed if each.counts]
    pending = tuple(each.settings for each in _each(finalists) if each.settings not in said)
    seconds = sum(job.seconds for job in jobs if any(each.counts for each in job.tried))
    counted = sum(each.counts for each in explored)
    every = choices_of(space, search.trials + 1)
    asked = search.trials if every is None else min(search.trials, len(every) - 1)
    is_over = counted >= asked or seconds >= search.wall_s
    phase: Phase = "explore"
    if confirmed or is_over:
        phase = "confirm" if pending else "done"
    elif asked <= search.finalists and not explored:
        phase = "confirm"
    return Standing(
        contract=contract,
        asked=asked,
        phase=phase,
        explored=explored,
        confirmed=confirmed,
        pending=pending,
        tuned=_tuned(confirmed) if phase == "done" else None,
        seconds=seconds,
        evidence=jobs[-1].evidence if jobs else None,
    )


def _newest(confirmed: Sequence[Tried]) -> tuple[Tried, ...]:
    """Return what was said last of each finalist; the bench's own failure if nothing else was."""
    return _each([*(each for each in confirmed if not each.counts), *filter(_counts, confirmed)])


def _counts(each: Tried) -> bool:
    return each.counts


def _each(tried: Sequence[Tried]) -> tuple[Tried, ...]:
    """Return the last of each configuration, in the order in which they first came."""
    found: dict[str, Tried] = {}
    for each in tried:
        found[repr(sorted(each.settings.items()))] = each
    return tuple(found.values())


def _tuned(confirmed: Sequence[Tried]) -> Tried | None:
    """Return the best of those that beat default again when they were confirmed.

    Noise may widen its interval beyond 1, but must not leave the weaker bar.
    """
    return next(iter(best_of(confirmed, 1)), None)
