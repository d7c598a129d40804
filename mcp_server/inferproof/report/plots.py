"""Latency curves as points of a drawing: which share of the requests was answered within what."""

from inferproof.core.values import Value
from inferproof.report.rows import Curve, Row

WIDTH, HEIGHT = 400.0, 160.0


class Line(Value):
    """One arm's curve: `points` for an SVG polyline, and its median and P95 in ms."""

    arm: str
    points: str
    p50_ms: float
    p95_ms: float


class Plot(Value):
    """All arms of one job under one traffic shape, on one scale that ends at `most_ms`."""

    seq: int
    candidate: str
    traffic: str
    most_ms: float
    lines: tuple[Line, ...]


def plots_of(row: Row) -> tuple[Plot, ...]:
    """Return one drawing for each traffic shape of a judged job."""
    return tuple(_plot(row, traffic) for traffic in dict.fromkeys(c.traffic for c in row.curves))


def _plot(row: Row, traffic: str) -> Plot:
    curves = [curve for curve in row.curves if curve.traffic == traffic]
    most_ms = max(curve.latency_ms[-1] for curve in curves)
    return Plot(
        seq=row.seq,
        candidate=row.candidate,
        traffic=traffic,
        most_ms=most_ms,
        lines=tuple(_line(curve, most_ms) for curve in curves),
    )


def _line(curve: Curve, most_ms: float) -> Line:
    values = curve.latency_ms
    shares = [(index + 1) / len(values) for index in range(len(values))]
    places = [
        f"{WIDTH * value / most_ms:.1f},{HEIGHT * (1 - share):.1f}"
        for value, share in zip(values, shares, strict=True)
    ]
    return Line(
        arm=curve.arm,
        points=" ".join((f"{WIDTH * values[0] / most_ms:.1f},{HEIGHT:.1f}", *places)),
        p50_ms=values[(len(values) - 1) // 2],
        p95_ms=values[min(len(values) - 1, int(0.95 * len(values)))],
    )
