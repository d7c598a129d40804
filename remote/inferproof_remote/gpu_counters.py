"""The counters that a verdict needs, by short names, whatever a chip or version calls them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferproof_remote.ncu import Profiled

_ELAPSED, _ACTIVE = "avg.pct_of_peak_sustained_elapsed", "avg.pct_of_peak_sustained_active"
_EITHER: Mapping[str, tuple[str, ...]] = {
    "duration_ns": ("gpu__time_duration.sum", "gpu__time_duration.avg"),
    "dram_pct": (f"gpu__dram_throughput.{_ELAPSED}", f"dram__throughput.{_ELAPSED}"),
    "l2_pct": (f"lts__throughput.{_ELAPSED}",),
    "l1_pct": (f"l1tex__throughput.{_ELAPSED}", f"l1tex__throughput.{_ACTIVE}"),
    "sm_pct": (f"sm__throughput.{_ELAPSED}",),
    "occupancy_pct": (f"sm__warps_active.{_ACTIVE}",),
    "occupancy_limit_pct": ("sm__maximum_warps_per_active_cycle_pct",),
    "l1_hit_pct": ("l1tex__t_sector_hit_rate.pct",),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct",),
    "waves": ("launch__waves_per_multiprocessor",),
    "blocks": ("launch__grid_size",),
    "threads_per_block": ("launch__block_size",),
    "multiprocessors": ("launch__sm_count",),
    "registers": ("launch__registers_per_thread",),
    "shared_bytes": ("launch__shared_mem_per_block",),
    "blocks_by_registers": ("launch__occupancy_limit_registers",),
    "blocks_by_shared_memory": ("launch__occupancy_limit_shared_mem",),
    "blocks_by_warps": ("launch__occupancy_limit_warps",),
    "blocks_by_slots": ("launch__occupancy_limit_blocks",),
    "global_sectors": ("memory_l2_theoretical_sectors_global",),
    "global_sectors_ideal": ("memory_l2_theoretical_sectors_global_ideal",),
    "shared_wavefronts": ("memory_l1_wavefronts_shared",),
    "shared_wavefronts_ideal": ("memory_l1_wavefronts_shared_ideal",),
}
_SUMS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "dram_bytes": (
        ("dram__bytes_read.sum", "dram__bytes_write.sum"),
        ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum"),
        ("dram__bytes.sum",),
    ),
    "local_sectors": (
        tuple(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{way}.sum" for way in ("ld", "st")),
        ("memory_l2_theoretical_sectors_local",),
    ),
}
# From compute capability 10 on, tcgen05 goes through a pipe of its own beside the tensor pipe.
_TENSOR = tuple(
    re.compile(rf"sm__(inst_executed_)?pipe_(tensor|tc)(_[a-z0-9_]+)?\.{re.escape(kind)}")
    for kind in (_ELAPSED, _ACTIVE)
)
_STALL = re.compile(r"smsp__average_warps_issue_stalled_([a-z_]+)_per_issue_active\.ratio")
_ISSUES = "selected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """One launch: what was measured, by short names, and the share of its time that warps wait.

    What is not in `values` was not found. `stalls` says for what, `not_selected` and all.
    """

    kernel: str
    values: Mapping[str, float]
    stalls: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def not_found(self) -> tuple[str, ...]:
        """Every counter that this chip or version did not give."""
        absent = [name for name in KNOWN if name not in self.values]
        return (*absent, *(() if self.stalls else ("stalls",)))

    def absent(self, *names: str) -> tuple[str, ...]:
        """Return those of `names` that were not found."""
        return tuple(name for name in names if name not in self.values)

    def stalled(self, *reasons: str) -> float:
        """Return the share of warps' time that goes to these reasons together."""
        return sum(self.stalls.get(reason, 0.0) for reason in reasons)


def counters_of(profiled: Profiled) -> Counters:
    """Return what a verdict needs of one profiled launch."""
    metrics = profiled.metrics
    values: dict[str, float] = {}
    for name, either in _EITHER.items():
        found = [metrics[each] for each in either if each in metrics]
        values |= {name: found[0]} if found else {}
    for name, groups in _SUMS.items():
        sums = [_sum(metrics, group) for group in groups if all(each in metrics for each in group)]
        values |= {name: sums[0]} if sums else {}
    for pattern in _TENSOR:
        busy = [value for name, value in metrics.items() if pattern.fullmatch(name)]
        if busy and "tensor_pct" not in values:
            values["tensor_pct"] = max(busy)
    return Counters(kernel=profiled.kernel, values=values, stalls=_stalls(metrics))


def is_used(metric: str) -> bool:
    """Return whether any verdict looks at a metric of this name."""
    named = {each for either in _EITHER.values() for each in either}
    named |= {each for groups in _SUMS.values() for group in groups for each in group}
    patterns = (*_TENSOR, _STALL)
    return metric in named or any(pattern.fullmatch(metric) for pattern in patterns)


def _sum(metrics: Mapping[str, float], names: Sequence[str]) -> float:
    return sum(metrics[name] for name in names)


def _stalls(metrics: Mapping[str, float]) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for name, value in metrics.items():
        match = _STALL.fullmatch(name)
        if match is not None:
            ratios[match[1]] = value
    whole = sum(ratios.values())
    if not whole:
        return {}
    return {name: value / whole for name, value in ratios.items() if name != _ISSUES and value > 0}


KNOWN = (*_EITHER, *_SUMS, "tensor_pct")
