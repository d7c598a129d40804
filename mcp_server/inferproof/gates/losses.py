"""Mean errors held against a floor: what chance explains is no finding.

Rows are pairs: what an engine is off by, and what the trusted path is off by at the same place. Few
rows with heavy tails scatter, so a mean must be beyond its bar by standard errors.
"""

import math
import statistics
from collections.abc import Sequence

LEAST_MEAN_ROWS = 12
LEAST_FLOOR_NATS = 1e-6
SIGMAS = 3.0


def mean_beyond(rows: Sequence[tuple[float, float]], factor: float, sigmas: float = SIGMAS) -> str:
    """Return the figures of a mean error that is beyond `factor` floors; empty when it is not."""
    if len(rows) < LEAST_MEAN_ROWS:
        return ""
    over = [error - factor * floor for error, floor in rows]
    chance = max(sigmas * statistics.stdev(over) / math.sqrt(len(over)), LEAST_FLOOR_NATS)
    if statistics.fmean(over) <= chance:
        return ""
    error, floor = (statistics.fmean(column) for column in zip(*rows, strict=True))
    return f"{error:.2g} nats a token, floor {floor:.2g}, {factor:g} times that allowed"
