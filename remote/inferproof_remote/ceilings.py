"""What this machine reaches, measured in the same run: bandwidth of memory and cache, arithmetic.

A ceiling that is too low would refuse honest work, so each is the best single run of several kinds
of access, with the threads that the candidate has, or with one thread, scaled up: while other work
holds a core, threads that wait for each other reach nothing.
"""

import time
from collections.abc import Callable, Mapping

import torch

_LEAST_REPEATS = 3
_BUDGET_S = 0.02
_UNKNOWN_CACHE_BYTES = 32 << 20
_LARGEST_BUFFER_BYTES = 1 << 29
_SIDE = 1024


def measure_ceilings(caches_bytes: Mapping[str, int]) -> dict[str, object]:
    """Return the ceilings of this machine in the form of the evidence."""
    sizes = [size for level, size in caches_bytes.items() if not level.startswith("L1")]
    last_level = max(sizes, default=0)
    beyond = min(_LARGEST_BUFFER_BYTES, 4 * (last_level or _UNKNOWN_CACHE_BYTES))
    within = {min(sizes, default=1 << 20), (last_level or _UNKNOWN_CACHE_BYTES) // 4}
    return {
        "memory_bytes_per_s": _best_rate(lambda: _bytes_per_s(beyond)),
        "cache_bytes_per_s": _best_rate(lambda: max(map(_bytes_per_s, within))),
        "flops_per_s": _best_rate(
            lambda: max(_flops_per_s(torch.float32), _flops_per_s(torch.bfloat16))
        ),
        "last_level_cache_bytes": last_level or None,
    }


def _best_rate(measure: Callable[[], float]) -> float:
    """Return the better rate of all threads together and of one alone times their number."""
    threads = torch.get_num_threads()
    together = measure()
    torch.set_num_threads(1)
    try:
        alone = measure()
    finally:
        torch.set_num_threads(threads)
    return max(together, threads * alone)


def _bytes_per_s(size_bytes: int) -> float:
    """Return the best rate of copying, filling and reading buffers of `size_bytes`."""
    source = torch.ones(size_bytes // 4)
    target = torch.empty_like(source)
    return max(
        2 * size_bytes / _best_s(lambda: target.copy_(source)),
        size_bytes / _best_s(lambda: target.fill_(1.0)),
        size_bytes / _best_s(lambda: source.sum()),
        size_bytes / _best_s(lambda: source.amax()),
    )


def _flops_per_s(dtype: torch.dtype) -> float:
    left = torch.ones(_SIDE, _SIDE, dtype=dtype)
    right = torch.ones(_SIDE, _SIDE, dtype=dtype)
    product = torch.empty_like(left)
    return 2.0 * _SIDE**3 / _best_s(lambda: torch.mm(left, right, out=product))


def _best_s(work: Callable[[], object]) -> float:
    """Return the least seconds that one `work` took, over as many as fit the budget."""
    work()
    best, spent, repeats = float("inf"), 0.0, 0
    while repeats < _LEAST_REPEATS or spent < _BUDGET_S:
        started = time.perf_counter()
        work()
        took = time.perf_counter() - started
        best, spent, repeats = min(best, took), spent + took, repeats + 1
    return best
