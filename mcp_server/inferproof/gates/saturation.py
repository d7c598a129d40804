"""Saturation: how throughput grows with concurrency, and where it stops to grow."""

from collections.abc import Mapping
from statistics import median

from inferproof.core.serving_facts import Arm, ServeFacts
from inferproof.core.traffic import Traffic

KNEE_SHARE = 0.95


def curve(serve: ServeFacts, shape: Traffic, arm: Arm) -> dict[int, float]:
    """Return the median throughput over restarts, in tokens/s, at each concurrency of a ramp."""
    found: dict[int, float] = {}
    for step in shape.steps:
        runs = [r for r in serve.loads if r.arm == arm and r.traffic == step.name]
        rates = [r.output_tokens_per_s for r in runs if r.output_tokens_per_s is not None]
        if step.concurrency is not None and rates:
            found[step.concurrency] = median(rates)
    return found


def knee(points: Mapping[int, float]) -> int | None:
    """Return the least concurrency with 95 % of the greatest throughput."""
    most = max(points.values(), default=0.0)
    return next((each for each in sorted(points) if points[each] >= KNEE_SHARE * most), None)


def saturation_text(serve: ServeFacts, shape: Traffic) -> str:
    """Return both arms' curves and knees on a ramp as a reader writes them; nothing elsewhere."""
    if not shape.ramp:
        return ""
    parts = [_arm_text(serve, shape, arm) for arm in ("candidate", "baseline")]
    return f"saturation on {shape.name}: {', '.join(filter(None, parts))}"


def _arm_text(serve: ServeFacts, shape: Traffic, arm: Arm) -> str:
    points = curve(serve, shape, arm)
    at = knee(points)
    if at is None:
        return ""
    told = " ".join(f"{each}:{points[each]:.0f}" for each in sorted(points))
    return f"{arm} at {at} in flight ({told} tokens/s)"
