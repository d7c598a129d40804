"""One sentence that says what bounds a kernel, from its time and the machine's ceilings."""

from dataclasses import dataclass

_SHORT_S = 100e-6
_OVERHEAD_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """What the machine was measured to reach; `None` is not measured."""

    memory_bytes_per_s: float | None
    cache_bytes_per_s: float | None
    flops_per_s: float | None
    last_level_cache_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """One call: its time, and the least it must move and compute."""

    seconds: float
    bytes: float
    flops: float


def bottleneck(cost: CallCost, speeds: Speeds) -> str:
    """Return what bounds the call: memory, compute or the overhead of being called."""
    in_cache = speeds.last_level_cache_bytes is not None and (
        cost.bytes <= speeds.last_level_cache_bytes / 2
    )
    bandwidth = speeds.cache_bytes_per_s if in_cache else speeds.memory_bytes_per_s
    if not bandwidth or not speeds.flops_per_s:
        return "not known: the ceilings of this machine were not measured"
    moving_s, computing_s = cost.bytes / bandwidth, cost.flops / speeds.flops_per_s
    least_s = max(moving_s, computing_s)
    if cost.seconds < _SHORT_S and least_s < _OVERHEAD_SHARE * cost.seconds:
        return (
            f"overhead: a call takes {cost.seconds * 1e6:.1f} us, the work itself needs at least "
            f"{least_s * 1e6:.1f} us; do more per call or fewer operators"
        )
    if moving_s >= computing_s:
        place = "cache" if in_cache else "memory"
        return (
            f"memory: moves {cost.bytes / cost.seconds / 1e9:.1f} GB/s, "
            f"{_percent(moving_s, cost)} of the {bandwidth / 1e9:.1f} GB/s that this machine's "
            f"{place} reaches"
        )
    return (
        f"compute: does {cost.flops / cost.seconds / 1e9:.1f} GFLOP/s, "
        f"{_percent(computing_s, cost)} of the {speeds.flops_per_s / 1e9:.1f} GFLOP/s that this "
        "machine reaches"
    )


def _percent(least_s: float, cost: CallCost) -> str:
    return f"{100 * least_s / cost.seconds:.0f} %"
