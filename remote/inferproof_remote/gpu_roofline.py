"""How far a call is from the roofline of this very chip, and of its datasheet."""

from collections.abc import Mapping
from dataclasses import dataclass

# Memory in bytes a second and dense bf16 products in operations a second, as the vendor prints.
_DATASHEETS: tuple[tuple[str, float, float], ...] = (
    ("GB200", 8.0e12, 2500e12),
    ("B200", 8.0e12, 2250e12),
    ("H200", 4.8e12, 989e12),
    ("H100 80GB HBM3", 3.35e12, 989e12),
    ("H100 PCIe", 2.0e12, 756e12),
    ("A100-SXM4-80GB", 2.039e12, 312e12),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The least time of a call, by measured ceilings and by the datasheet; `None` is not known.

    `bound` says which ceiling is the nearest: memory, cache (it all fits there) or compute.
    """

    bound: str
    least_s: float
    share: float
    datasheet_least_s: float | None
    datasheet_share: float | None
    datasheet_memory_bytes_per_s: float | None
    datasheet_flops_per_s: float | None


def roofline(
    *,
    chip: str,
    seconds: float,
    moved_bytes: float,
    flops: float,
    ceilings: Mapping[str, object],
) -> Roofline | None:
    """Return where a call stands; None if the ceilings were not measured."""
    cache_bytes, per_s = (
        _number(ceilings["last_level_cache_bytes"]),
        _number(ceilings["flops_per_s"]),
    )
    in_cache = cache_bytes is not None and moved_bytes <= cache_bytes / 2
    bandwidth = _number(ceilings["cache_bytes_per_s" if in_cache else "memory_bytes_per_s"])
    if not bandwidth or not per_s:
        return None
    moving_s, computing_s = moved_bytes / bandwidth, flops / per_s
    least_s = max(moving_s, computing_s)
    place = "cache" if in_cache else "memory"
    memory, matrix = _datasheet(chip)
    told = None if memory is None or matrix is None else max(moved_bytes / memory, flops / matrix)
    return Roofline(
        bound=place if moving_s >= computing_s else "compute",
        least_s=least_s,
        share=least_s / seconds,
        datasheet_least_s=told,
        datasheet_share=None if told is None else told / seconds,
        datasheet_memory_bytes_per_s=memory,
        datasheet_flops_per_s=matrix,
    )


def _datasheet(chip: str) -> tuple[float, float] | tuple[None, None]:
    found = (row for row in _DATASHEETS if row[0] in chip)
    row = next(found, None)
    return (None, None) if row is None else (row[1], row[2])


def _number(raw: object) -> float | None:
    return float(raw) if isinstance(raw, int | float) else None
