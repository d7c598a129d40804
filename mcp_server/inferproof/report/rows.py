"""What a report shows, as values: one row per judged job, every number beside its entry."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from inferproof.core.evidence import Evidence
from inferproof.core.service import Metric
from inferproof.core.serving_facts import ServeFacts
from inferproof.core.values import Digest, Entry, Outcome, Value, Verdict
from inferproof.gates import overall
from inferproof.gates.intervals import Speed, is_complete, speeds
from inferproof.gates.ratios import ratio_of

SHOWN: Mapping[Metric, str] = {
    "ttft_ms": "TTFT",
    "tpot_ms": "TPOT",
    "output_tokens_per_s": "throughput",
}


class Bar(Value):
    """One timed shape or metric: how much better than the baseline, with its 95 % interval.

    `figure` is the candidate's own, in `unit`.
    """

    shape: str
    baseline: str
    figure: float
    unit: str = "ms"
    ratio: float
    low: float
    high: float


class Curve(Value):
    """Latencies of one arm under one traffic shape, in ms, in ascending order."""

    traffic: str
    arm: str
    latency_ms: tuple[float, ...]


class Row(Value):
    """One judged job."""

    seq: int
    entry: Digest
    at: str
    tool: str
    purpose: str
    candidate: str
    note: str
    outcome: Outcome
    gate: str
    code: str
    reason: str
    bars: tuple[Bar, ...]
    curves: tuple[Curve, ...] = ()


def rows(
    entries: Sequence[Entry],
    evidence_of: Callable[[Digest], Evidence],
    note_of: Callable[[Digest], str],
) -> tuple[Row, ...]:
    """Return one row per outcome that carries verdicts, in ledger order.

    Args:
        entries: the whole ledger.
        evidence_of: fetches stored evidence by digest.
        note_of: what the candidate's manifest says about itself.
    """
    attempts = {e.body["job_id"]: e for e in entries if e.body["kind"] == "attempt"}
    judged = [e for e in entries if e.body["kind"] == "outcome" and e.body.get("verdicts")]
    return tuple(_row(e, attempts[e.body["job_id"]], evidence_of, note_of) for e in judged)


def _row(
    entry: Entry,
    attempt: Entry,
    evidence_of: Callable[[Digest], Evidence],
    note_of: Callable[[Digest], str],
) -> Row:
    verdicts = tuple(Verdict.model_validate(v) for v in _list(entry.body["verdicts"]))
    outcome, deciding = overall(verdicts)
    evidence = evidence_of(str(entry.body["evidence"]))
    candidate = str(attempt.body["candidate"])
    return Row(
        seq=entry.seq,
        entry=entry.digest,
        at=entry.at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        tool=str(attempt.body["tool"]),
        purpose=evidence.purpose.value,
        candidate=candidate,
        note=note_of(candidate),
        outcome=outcome,
        gate=deciding.gate,
        code=deciding.code.value,
        reason=deciding.reason,
        bars=_bars(evidence),
        curves=_curves(evidence.serve) if evidence.serve else (),
    )


def _bars(evidence: Evidence) -> tuple[Bar, ...]:
    if evidence.serve is not None:
        return tuple(_metric_bars(evidence.serve))
    grade = evidence.grade
    if grade is None or not grade.timed or not all(map(is_complete, grade.timed)):
        return ()
    return tuple(_bar(speed) for speed in speeds(grade))


def _bar(speed: Speed) -> Bar:
    return Bar(
        shape=", ".join(f"{name} {extent}" for name, extent in speed.dims.items()),
        baseline=speed.best_baseline,
        figure=speed.candidate_s * 1e3,
        ratio=speed.ratio,
        low=speed.low,
        high=speed.high,
    )


def _metric_bars(serve: ServeFacts) -> Iterator[Bar]:
    engines = {start.engine for start in serve.deployments if start.arm == "baseline"}
    for traffic in dict.fromkeys(run.traffic for run in serve.loads):
        for metric in SHOWN:
            ratio = ratio_of(serve, traffic, metric)
            if ratio.value > 0:
                yield Bar(
                    shape=f"{SHOWN[metric]} on {traffic}",
                    baseline=", ".join(sorted(engines)),
                    figure=ratio.candidate,
                    unit="tokens/s" if metric == "output_tokens_per_s" else "ms",
                    ratio=ratio.value,
                    low=ratio.low,
                    high=ratio.high,
                )


def _curves(serve: ServeFacts) -> tuple[Curve, ...]:
    found: dict[tuple[str, str], list[float]] = {}
    for run in serve.loads:
        found.setdefault((run.traffic, run.arm), []).extend(run.latency_ms)
    return tuple(
        Curve(traffic=traffic, arm=arm, latency_ms=tuple(sorted(values)))
        for (traffic, arm), values in sorted(found.items())
        if values
    )


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
