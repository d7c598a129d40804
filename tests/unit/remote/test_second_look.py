"""A second look: what rounding alone explains is excused, and nothing else."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import cast

from torch import Tensor

from inferproof_remote.serving.prompts import ScoredPath
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import PathTable, Reading, Transcript, score, top
from inferproof_remote.serving.second_look import look_again
from unit.remote.test_audit import VOCABULARY, Counting
from unit.remote.test_fidelity import RULES

TEXT = (1, 2, 3, 5, 6)
AT = 3


@dataclass
class Edge(Counting):
    """A trusted path that rounding carries, once in three times, to the letter after the next."""

    falls_at: frozenset[int]
    looks: list[int] = field(default_factory=list[int])

    def shaken(self, ids: Sequence[int]) -> Iterator[Tensor]:
        self.looks.append(len(ids))
        shift = int(len(ids) in self.falls_at)
        for moved in (0, 0, shift):
            yield self.logprobs([each + moved for each in ids])[-1]


def looked_at(
    edge: Edge, said: Sequence[tuple[int, int]], path: ScoredPath = "decode"
) -> PathTable:
    """Return the table of an engine that says at these positions that these tokens come."""
    yardsticks = cast(
        "Yardsticks", SimpleNamespace(truth=Counting(), floor=edge, vocabulary=VOCABULARY)
    )
    table, told = PathTable(path), list[Transcript]()
    for number, (at, token) in enumerate(said):
        listed = top(Counting().logprobs([token - 1])[-1], 5)
        ids = (*TEXT[:at], token)
        reading = Reading(position=at, listed=listed, chosen=True)
        told.append(Transcript(path=path, number=number, ids=ids, readings=(reading,)))
    look_again(score({path: table}, told, yardsticks), RULES, yardsticks)
    return table


def test_a_row_that_rounding_carries_as_far_is_explained() -> None:
    table = looked_at(Edge(frozenset({AT})), [(AT, 5)])
    assert table.kl[0] > 1
    assert math.isclose(table.shaken_kl[0], table.kl[0], rel_tol=1e-6)
    assert table.tie_gap_nats == [0.0]


def test_a_row_that_rounding_does_not_carry_stays_as_it_was() -> None:
    table = looked_at(Edge(frozenset()), [(AT, 5)])
    assert table.shaken_kl[0] < 1e-9
    assert table.tie_gap_nats[0] > RULES.tie_nats


def test_a_row_that_is_near_enough_is_not_read_again() -> None:
    edge = Edge(frozenset({AT}))
    looked_at(edge, [(AT, 4)])
    assert edge.looks == []


def test_the_cheapest_row_that_stays_unexplained_ends_the_looking() -> None:
    edge = Edge(frozenset({2}))
    looked_at(edge, [(4, 7), (AT, 5), (2, 4)])
    assert edge.looks == [2, AT]


def test_beyond_the_contract_one_such_row_ends_nothing() -> None:
    edge = Edge(frozenset())
    looked_at(edge, [(4, 7), (AT, 5)], "beyond")
    assert edge.looks == [AT, 4]
