"""What this accelerator reaches, measured in the same run: memory, cache and matrix products."""

from collections.abc import Callable

import torch

_BEYOND_CACHE_BYTES = 1 << 30
_SIDE = 8192
_REPEATS = 5
_IN_GRAPH = 20


def measure_ceilings(l2_bytes: int) -> dict[str, object]:
    """Return the ceilings of the device as the evidence has them, each the best of its kind."""
    return {
        "memory_bytes_per_s": _bytes_per_s(_BEYOND_CACHE_BYTES, 1),
        "cache_bytes_per_s": max(_bytes_per_s(l2_bytes // part, _IN_GRAPH) for part in (4, 8)),
        "flops_per_s": max(_flops_per_s(torch.bfloat16), _flops_per_s(torch.float16)),
        "last_level_cache_bytes": l2_bytes,
    }


def _bytes_per_s(size_bytes: int, times: int) -> float:
    """Return the best rate of copying, filling and reading buffers of `size_bytes`."""
    source = torch.randn(size_bytes // 4, device="cuda")
    target = torch.empty_like(source)
    return max(
        2 * size_bytes / _best_s(lambda: target.copy_(source), times),
        size_bytes / _best_s(lambda: target.fill_(1.0), times),
        size_bytes / _best_s(lambda: source.sum(), times),
        size_bytes / _best_s(lambda: source.amax(), times),
    )


def _flops_per_s(dtype: torch.dtype) -> float:
    left = torch.randn(_SIDE, _SIDE, device="cuda", dtype=dtype)
    right = torch.randn(_SIDE, _SIDE, device="cuda", dtype=dtype)
    product = torch.empty_like(left)
    return 2.0 * _SIDE**3 / _best_s(lambda: torch.mm(left, right, out=product), 1)


def _best_s(work: Callable[[], object], times: int) -> float:
    """Return the least seconds that one `work` took, in a graph of `times`."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(times):
                work()
        graph.replay()
        best = float("inf")
        for _ in range(_REPEATS):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record(stream)
            graph.replay()
            last.record(stream)
            torch.cuda.synchronize()
            best = min(best, first.elapsed_time(last) * 1e-3 / times)
    return best
