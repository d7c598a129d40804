"""Both arms' output as it is measured: honest, or worse by as much as one asks."""

import random
from collections.abc import Sequence

Tree = dict[str, object]
ITEMS, ROWS, DECODED = 12, 95, 12


def noise(seed: str, count: int, size: float) -> list[float]:
    """Return errors as a low precision makes them."""
    drawn = random.Random(seed)
    return [size * drawn.lognormvariate(0, 1) for _ in range(count)]


def table(arm: str, path: str, rows: int, *, kl: float, nll: float, misses: float) -> Tree:
    """Return one path of one arm over all items."""
    count = ITEMS * rows
    drawn = random.Random(f"{arm} {path}")
    text = [2.0 + each for each in noise("text", count, 1.0)]
    reads = path == "prompt"
    return {
        "path": path,
        "asked": count,
        "unreadable": 0,
        "unanswered": 0,
        "sequence": [item for item in range(ITEMS) for _ in range(rows)],
        "position": [at + (1 if reads else 96) for _ in range(ITEMS) for at in range(rows)],
        "kl": noise(f"{arm} {path}", count, 1e-4 + kl),
        "floor_kl": noise(f"floor {path}", count, 1e-4),
        "tie_gap_nats": [] if reads else [0.0] * count,
        "nll_engine": [each + nll for each in text] if reads else [],
        "nll_reference": text if reads else [],
        "agrees": [int(drawn.random() >= 0.01 + misses) for _ in range(count)],
    }


def arm_facts(arm: str, *, kl: float = 0.0, nll: float = 0.0, misses: float = 0.0) -> Tree:
    """Return one arm's tables."""
    sizes = {"prompt": ROWS, "decode": DECODED}
    scores = [table(arm, path, rows, kl=kl, nll=nll, misses=misses) for path, rows in sizes.items()]
    return {"arm": arm, "restart": 0, "lengths": [96] * ITEMS, "scores": scores, "seconds": 1.0}


def quality_facts(
    *,
    candidate: Tree | None = None,
    baseline: Tree | None = None,
    apart: float = 1.0,
    declared: Sequence[str] = ("none", "none"),
) -> Tree:
    """Return both arms; their outputs are `apart` times the floor from each other."""
    count = ITEMS * ROWS
    return {
        "arms": [candidate or arm_facts("candidate"), baseline or arm_facts("baseline")],
        "quantisation": {"candidate": declared[0], "baseline": declared[1]},
        "apart": {
            "sequence": [item for item in range(ITEMS) for _ in range(ROWS)],
            "position": [at + 1 for _ in range(ITEMS) for at in range(ROWS)],
            "kl": noise("apart", count, apart * 1e-4),
            "floor_kl": noise("floor", count, 1e-4),
        },
    }
