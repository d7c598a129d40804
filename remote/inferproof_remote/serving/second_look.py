"""A second look at single tokens that would convict an engine: could rounding alone have done it?

Where a model stands on an edge (two keys that draw as much attention, two experts as likely), any
rounding may push it over, and one reading of the trusted path says little of how far one falls.
Such a row is read again by passes that round more. The cheapest rows come first: one that stays
unexplained decides, so that a faulty engine costs no more looks than that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from inferproof_remote.serving.prompts import Rules
from inferproof_remote.serving.reference import Yardsticks
from inferproof_remote.serving.scoring import (
    TWO_READINGS,
    PathTable,
    ScoredRow,
    divergence,
    tie_gap_nats,
    top,
)

_MOST_ROWS = 32
_LEAST_TAIL_NATS = 1e-5
_MOST_ROW_NATS = 1.0


def look_again(scored: Sequence[ScoredRow], rules: Rules, yardsticks: Yardsticks) -> None:
    """Add to the tables what rounding does to the rows that would convict."""
    tables = {each.table.path: each.table for each in scored}
    pooled = max(chain([_LEAST_TAIL_NATS], *_floors(tables.values())))
    look = _Look(rules, yardsticks, pooled)
    suspects = [each for each in scored if look.convicts(each)]
    suspects.sort(key=lambda each: (each.table.path == "beyond", each.reading.position))
    for each in suspects[:_MOST_ROWS]:
        if not look.explains(each) and each.table.path != "beyond":
            return


def _floors(tables: Iterable[PathTable]) -> Iterable[list[float]]:
    return (table.floor_kl for table in tables if table.path != "split")


@dataclass(frozen=True, slots=True)
class _Look:
    rules: Rules
    yardsticks: Yardsticks
    pooled: float

    def convicts(self, row: ScoredRow) -> bool:
        """Return whether a row is off by itself, beyond what was explained so far."""
        table, at = row.table, row.at
        is_off = row.reading.chosen and table.tie_gap_nats[at] > self.rules.tie_nats
        if row.reading.listed is None:
            return is_off
        floors = self.rules.max_over_floor * max(self.pooled, *table.floor_kl)
        most = min(floors, _MOST_ROW_NATS)
        most = max(most, self.rules.p99_over_floor * table.shaken_kl[at])
        return is_off or table.kl[at] > most

    def explains(self, row: ScoredRow) -> bool:
        """Read the row again until it convicts no more; return whether that came."""
        ids, position = row.transcript.ids, row.reading.position
        truth = self.yardsticks.truth.logprobs(ids)[position - 1]
        table, at, listed = row.table, row.at, row.reading.listed
        for shaken in self.yardsticks.floor.shaken(ids[:position]):
            if row.reading.chosen:
                gap = tie_gap_nats(shaken, ids[position], self.yardsticks.vocabulary.ends)
                table.tie_gap_nats[at] = min(table.tie_gap_nats[at], gap)
            if listed is not None:
                off = divergence(truth, top(shaken, len(listed)))
                off *= 1.0 if row.reading.against is None else TWO_READINGS
                table.shaken_kl[at] = max(table.shaken_kl[at], off)
            if not self.convicts(row):
                return True
        return False
