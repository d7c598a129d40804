"""What a report shows, as values: one row per judged job, every number beside its entry."""

from collections.abc import Callable, Sequence

from inferproof.core.evidence import Evidence
from inferproof.core.values import Digest, Entry, Outcome, Value, Verdict
from inferproof.gates import overall
from inferproof.gates.intervals import Speed, is_complete, speeds


class Bar(Value):
    """One timed shape: how often faster than the best baseline, with its 95 % interval."""

    shape: str
    baseline: str
    candidate_ms: float
    ratio: float
    low: float
    high: float


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
    )


def _bars(evidence: Evidence) -> tuple[Bar, ...]:
    grade = evidence.grade
    if grade is None or not grade.timed or not all(map(is_complete, grade.timed)):
        return ()
    return tuple(_bar(speed) for speed in speeds(grade))


def _bar(speed: Speed) -> Bar:
    return Bar(
        shape=", ".join(f"{name} {extent}" for name, extent in speed.dims.items()),
        baseline=speed.best_baseline,
        candidate_ms=speed.candidate_s * 1e3,
        ratio=speed.ratio,
        low=speed.low,
        high=speed.high,
    )


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
