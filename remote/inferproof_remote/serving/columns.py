"""Responses of a load run as columns of its facts."""

from collections.abc import Sequence

from inferproof_remote.serving.records import Response
from inferproof_remote.serving.vocabulary import Vocabulary

_NS = 1e9
Facts = dict[str, object]


def columns(responses: Sequence[Response], vocabulary: Vocabulary) -> Facts:
    """Return one row a response, as columns."""
    return {
        "ttft_ms": [each.ttft_ms for each in responses],
        "tpot_ms": [each.tpot_ms for each in responses],
        "latency_ms": [each.latency_ms for each in responses],
        "isl": [len(vocabulary.encode(each.prompt)) for each in responses],
        "osl_asked": [each.osl_asked for each in responses],
        "osl": [len(each.ids) for each in responses],
        "told": [int(each.is_told) for each in responses],
        "chunks": [each.chunks for each in responses],
        "arrivals": [each.arrivals for each in responses],
        "whole": [int(each.is_whole) for each in responses],
    }


def cold_columns(responses: Sequence[Response]) -> Facts:
    """Return what the warm-up's responses took."""
    return {
        "cold_ttft_ms": [each.ttft_ms for each in responses],
        "cold_latency_ms": [each.latency_ms for each in responses],
    }


def run_seconds(responses: Sequence[Response]) -> float | None:
    """Return the time from the first request's start to the last response's end."""
    if not responses:
        return None
    began = min(each.began_ns for each in responses)
    return (max(each.ended_ns for each in responses) - began) / _NS


def finish_reasons(responses: Sequence[Response]) -> dict[str, int]:
    """Return how many responses ended for each reason."""
    reasons = [each.finish_reason for each in responses]
    return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


def p99(values: Sequence[float]) -> float | None:
    """Return the value that 1 in 100 exceeds; of fewer than 100 values, the second largest."""
    ordered = sorted(values)
    return ordered[int(0.99 * (len(ordered) - 1))] if ordered else None
