"""How much a fidelity measurement can show: tokens, interval, and the least error it would notice.

Rows of one sequence are alike, so whole sequences are drawn again for the interval; the draws
follow from the job's own bits. An error is noticed nine times in ten from where it exceeds the bar
by the chance that the rule allows for, and by as much again as the estimate itself scatters.
"""

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from inferproof.core.service import Fidelity
from inferproof.core.serving_facts import TokenScores

RESAMPLES = 400
TAIL = 0.025
ALLOWED_SIGMAS, NINE_IN_TEN_SIGMAS = 3.0, 1.28
LEAST_FLOOR_NATS = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """One path's mean KL over its floor: value, 95 % interval, and the least that is noticed."""

    path: str
    tokens: int
    ratio: float
    low: float
    high: float
    noticed: float

    @property
    def words(self) -> str:
        """The power as a reader writes it."""
        return (
            f"{self.path}: {self.tokens} tokens, {self.ratio:.2g} floors "
            f"({self.low:.2g} to {self.high:.2g}), {self.noticed:.2g} would be noticed"
        )


def together(table: TokenScores) -> TokenScores:
    """Return the rows that are judged together: one that was read again is judged by itself."""
    kept = [at for at, shaken in enumerate(table.shaken_kl) if not shaken]
    if len(kept) == len(table.shaken_kl):
        return table
    columns = {
        "sequence": table.sequence,
        "position": table.position,
        "kl": table.kl,
        "floor_kl": table.floor_kl,
    }
    left = {name: tuple(column[at] for at in kept) for name, column in columns.items()}
    return table.model_copy(update=left)


def power_of(table: TokenScores, rules: Fidelity, bits: str) -> Power | None:
    """Return what one path's rows can show; None without log-probabilities."""
    table = together(table)
    rows = _by_sequence(table)
    floor = fmean(table.floor_kl) if table.floor_kl else 0.0
    if len(table.kl) < 2 or floor <= LEAST_FLOOR_NATS:
        return None
    drawn = random.Random(f"{bits} {table.path}")  # noqa: S311 - not a secret
    ratios = sorted(_ratio(drawn.choices(rows, k=len(rows))) for _ in range(RESAMPLES))
    cut = int(TAIL * RESAMPLES)
    return Power(
        path=table.path,
        tokens=len(table.kl),
        ratio=fmean(table.kl) / floor,
        low=ratios[cut],
        high=ratios[-cut - 1],
        noticed=noticed(table, rules),
    )


def noticed(table: TokenScores, rules: Fidelity) -> float:
    """Return from how many floors on a mean error is refused nine times in ten."""
    table = together(table)
    floor = fmean(table.floor_kl) if table.floor_kl else 0.0
    over = [
        kl - rules.mean_over_floor * trusted
        for kl, trusted in zip(table.kl, table.floor_kl, strict=True)
    ]
    scatter = stdev(over) / math.sqrt(len(over)) if len(over) > 1 else math.inf
    sigmas = ALLOWED_SIGMAS + NINE_IN_TEN_SIGMAS
    return rules.mean_over_floor + sigmas * scatter / max(floor, LEAST_FLOOR_NATS)


def _by_sequence(table: TokenScores) -> list[tuple[float, float]]:
    """Return the sums of KL and floor of each sequence."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for row in zip(table.sequence, table.kl, table.floor_kl, strict=False):
        found[row[0]].append(row[1:])
    return [(sum(kl for kl, _ in rows), sum(floor for _, floor in rows)) for rows in found.values()]


def _ratio(rows: Sequence[tuple[float, float]]) -> float:
    return sum(kl for kl, _ in rows) / max(sum(floor for _, floor in rows), LEAST_FLOOR_NATS)
