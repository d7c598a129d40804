"""How far an engine's listed log-probabilities are from the reference, one row a token.

KL(reference || engine) over the tokens that the engine lists and one bucket for all others. The
floor is the same estimator on the trusted path's own list of as many tokens. A generated token may
be near the best of either: where rounding moves the trusted path, it may move an engine.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from inferproof_remote.serving.prompts import Ids, ScoredPath
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.vocabulary import Vocabulary

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
_LEAST_REST = 1e-6
TWO_READINGS = 2.0
_CERTAIN_SHARE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What an engine said of the token at `position`: its list, and the token if it chose it.

    `nll` is the engine's own negative log-likelihood of a token that it was given. `against` is
    what it said of the same position before, which then stands in for the reference. `lost` counts
    the listed names that are no certain token.
    """

    position: int
    listed: Mapping[int, float] | None
    chosen: bool
    nll: float | None = None
    against: Mapping[int, float] | None = None
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One sequence, engine's tokens included, and what the engine said of some of its tokens."""

    path: ScoredPath
    number: int
    ids: Ids
    readings: tuple[Reading, ...]


@dataclass(slots=True)
class PathTable:
    """The rows of one path, and what became of those that are missing.

    `asked` rows were asked for; `unreadable` ones came without what the engine was seen to give;
    `unanswered` ones never came. What is left over was not certain to be one token or another.
    """

    path: ScoredPath
    asked: int = 0
    unreadable: int = 0
    unanswered: int = 0
    sequence: list[int] = field(default_factory=list[int])
    position: list[int] = field(default_factory=list[int])
    kl: list[float] = field(default_factory=list[float])
    floor_kl: list[float] = field(default_factory=list[float])
    shaken_kl: list[float] = field(default_factory=list[float])
    tie_gap_nats: list[float] = field(default_factory=list[float])
    loss_nats: list[float] = field(default_factory=list[float])
    floor_loss_nats: list[float] = field(default_factory=list[float])
    nll_engine: list[float] = field(default_factory=list[float])
    nll_reference: list[float] = field(default_factory=list[float])
    agrees: list[int] = field(default_factory=list[int])

    def as_facts(self) -> dict[str, Json]:
        """Return the table as it is recorded."""
        return {
            "path": self.path,
            "asked": self.asked,
            "unreadable": self.unreadable,
            "unanswered": self.unanswered,
            "sequence": [*self.sequence],
            "position": [*self.position],
            "kl": [*self.kl],
            "floor_kl": [*self.floor_kl],
            "shaken_kl": [*self.shaken_kl],
            "tie_gap_nats": [*self.tie_gap_nats],
            "loss_nats": [*self.loss_nats],
            "floor_loss_nats": [*self.floor_loss_nats],
            "nll_engine": [*self.nll_engine],
            "nll_reference": [*self.nll_reference],
            "agrees": [*self.agrees],
        }


def score(
    tables: Mapping[ScoredPath, PathTable],
    transcripts: Sequence[Transcript],
    yardsticks: Yardsticks,
) -> "list[ScoredRow]":
    """Add a row for every reading; each sequence costs one forward pass at each precision."""
    rows: list[ScoredRow] = []
    passes = list(dict.fromkeys(each.ids for each in transcripts))
    by_ids: dict[Ids, list[Transcript]] = {ids: [] for ids in passes}
    for each in transcripts:
        by_ids[each.ids].append(each)
    truths, floors = yardsticks.truth.many(passes), yardsticks.floor.many(passes)
    for ids, truth, floor in zip(passes, truths, floors, strict=True):
        for each in by_ids[ids]:
            scorer = _Scorer(each, truth, floor, yardsticks.vocabulary)
            for reading in each.readings:
                table = tables[each.path]
                if scorer.hides(reading):
                    table.unreadable += 1
                    continue
                scorer.add(reading, table)
                rows.append(ScoredRow(table, len(table.position) - 1, each, reading))
    return rows


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """Where a reading's row is: `at` counts in the columns that its table has."""

    table: PathTable
    at: int
    transcript: Transcript
    reading: Reading


@dataclass(frozen=True, slots=True)
class _Scorer:
    transcript: Transcript
    truth: Tensor
    floor: Tensor
    vocabulary: Vocabulary

    def hides(self, reading: Reading) -> bool:
        """Return whether most of the list names no token where the reference's names would."""
        listed = len(reading.listed or ()) + reading.lost
        if 2 * reading.lost <= listed:
            return False
        best = top(self.truth[reading.position - 1], listed)
        named = sum(self.vocabulary.id_of(self.vocabulary.decode([each])) == each for each in best)
        return named >= _CERTAIN_SHARE * len(best)

    def add(self, reading: Reading, table: PathTable) -> None:
        token = self.transcript.ids[reading.position]
        truth, floor = self.truth[reading.position - 1], self.floor[reading.position - 1]
        table.sequence.append(self.transcript.number)
        table.position.append(reading.position)
        if reading.listed is not None:
            trusted = divergence(truth, top(floor, len(reading.listed)))
            table.shaken_kl.append(0.0)
            if reading.against is None:
                table.kl.append(divergence(truth, reading.listed))
                table.floor_kl.append(trusted)
            else:
                table.kl.append(between(reading.against, reading.listed, token))
                table.floor_kl.append(TWO_READINGS * trusted)
        best = max(reading.listed, key=reading.listed.__getitem__) if reading.listed else token
        table.agrees.append(int(tie_gap_nats(truth, best, self.vocabulary.ends) == 0))
        if reading.chosen:
            self._add_choice(token, truth, floor, table)
        if reading.nll is not None:
            table.nll_engine.append(reading.nll)
            table.nll_reference.append(-float(truth[token]))

    def _add_choice(self, token: int, truth: Tensor, floor: Tensor, table: PathTable) -> None:
        """Add what the engine's choice loses, and what the trusted path's own would."""
        ends = self.vocabulary.ends
        loss, floor_gap = (tie_gap_nats(row, token, ends) for row in (truth, floor))
        table.tie_gap_nats.append(min(loss, floor_gap))
        table.loss_nats.append(loss)
        table.floor_loss_nats.append(floor_loss_nats(truth, floor, token, ends))


def divergence(truth: Tensor, listed: Mapping[int, float]) -> float:
    """Return KL in nats of `truth` (log-probabilities) against the listed ones and their rest."""
    own = map(float, truth[list(listed)].double())
    total, truth_rest, listed_rest = 0.0, 1.0, 1.0
    for p_log, q_log in zip(own, listed.values(), strict=True):
        p = math.exp(p_log)
        total += p * (p_log - q_log)
        truth_rest -= p
        listed_rest -= math.exp(q_log)
    p, q = max(truth_rest, _LEAST_REST), max(listed_rest, _LEAST_REST)
    return max(0.0, total + p * math.log(p / q))


def between(first: Mapping[int, float], second: Mapping[int, float], own: int) -> float:
    """Return KL in nats of one list against another, both with the position's own token.

    A token that the second does not list is there as likely as the last of its best, which is the
    most that it can be; the own token is listed however unlikely it is.
    """
    least = min((value for token, value in second.items() if token != own), default=0.0)
    total, first_rest, second_rest = 0.0, 1.0, 1.0
    for token, p_log in first.items():
        q_log = second.get(token, least)
        p = math.exp(p_log)
        total += p * (p_log - q_log)
        first_rest -= p
        second_rest -= math.exp(q_log)
    p, q = max(first_rest, _LEAST_REST), max(second_rest, _LEAST_REST)
    return max(0.0, total + p * math.log(p / q))


def top(logprobs: Tensor, count: int) -> dict[int, float]:
    """Return the `count` likeliest tokens with their log-probabilities."""
    values, ids = logprobs.topk(min(count, len(logprobs)))
    return dict(zip(map(int, ids), map(float, values), strict=True))


def tie_gap_nats(truth: Tensor, token: int, ends: Sequence[int]) -> float:
    """Return the best log-probability less that of `token`.

    An engine that was told to go on after an end of text may forbid such tokens or emit them, so
    they count as better only than each other.
    """
    rivals = truth
    if token not in ends:
        rivals = truth.clone()
        rivals[list(ends)] = -torch.inf
    return max(0.0, float(rivals.max() - truth[token]))


def floor_loss_nats(truth: Tensor, floor: Tensor, token: int, ends: Sequence[int]) -> float:
    """Return what the trusted path's own choice loses where an engine chose `token`."""
    open_to_it = floor.clone()
    if token not in ends:
        open_to_it[list(ends)] = -torch.inf
    return tie_gap_nats(truth, int(open_to_it.argmax()), ends)


def near_best(truth: Tensor, within_nats: float, ends: Sequence[int]) -> list[int]:
    """Return the tokens whose `tie_gap_nats` is `within_nats` at most, the likeliest first."""
    rivals = truth.clone()
    rivals[list(ends)] = -torch.inf
    near = (rivals >= rivals.max() - within_nats) | (truth >= truth.max() - within_nats)
    found = [int(each) for each in near.nonzero()]
    return sorted(found, key=lambda each: -float(truth[each]))
