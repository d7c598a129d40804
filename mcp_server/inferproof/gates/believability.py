"""Believability: a load run's numbers count only if the run is what it was meant to be.

The client's exit code and summary prove nothing alone: an engine can answer errors within a 200,
close early, send all text at once, or repeat itself, and still look like a fast success.
"""

from collections.abc import Callable, Iterator
from statistics import median

from inferproof.core.service import Believability
from inferproof.core.serving_facts import LoadFacts, ServeFacts
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase

CLERK = Clerk("believability", __name__)
KILLED = -1
_EVENLY = 0.1
_LATE_READS = 3.0
_MOMENT_MS = 100.0
NEXT_STEPS = {
    Reason.REQUESTS_FAILED: "Answer every request of this traffic; read the errors in evidence.",
    Reason.RUN_INCOMPLETE: "End every stream with a finish_reason and [DONE].",
    Reason.WRONG_LENGTH: "Honour max_tokens and ignore_eos exactly.",
    Reason.CHUNKED_STREAM: "Stream each token as it is made; ITL means nothing otherwise.",
    Reason.REPETITIVE: "Compute each response; the reference's text is richer on these prompts.",
}
Finding = tuple[Reason, str]


class Believable:
    """Passes when every run of both arms is complete, of the asked lengths, and varied."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the load runs may be compared at all."""
        serve = case.evidence.serve
        if serve is None or not serve.loads:
            return CLERK.unmeasured("any load run")
        rules = case.contract.believability
        verdict = _broken(serve) or _refused(serve, rules) or _doubtful(serve, rules)
        requests = sum(run.completed for run in serve.loads)
        return verdict or CLERK.passes(f"{len(serve.loads)} runs, {requests} requests, nothing odd")


def _broken(serve: ServeFacts) -> Verdict | None:
    """Return the doubt about a run that the load generator itself did not finish."""
    for run in serve.loads:
        doubt = _bench_doubt(run)
        if doubt:
            return CLERK.doubts(Reason.INFRASTRUCTURE, f"{_where(run)}: {doubt}")
    return None


def _refused(serve: ServeFacts, rules: Believability) -> Verdict | None:
    """Return the fail of a candidate's run; what an engine sent does not hang on the clock."""
    for run in (each for each in serve.loads if each.arm == "candidate"):
        for code, what in _findings(run, serve, rules):
            return CLERK.fails(code, f"{_where(run)}: {what}", NEXT_STEPS[code])
    return None


def _doubtful(serve: ServeFacts, rules: Believability) -> Verdict | None:
    """Return the doubt about a client that came late, or about the baseline's runs."""
    for run in serve.loads:
        late = _lateness(run, rules)
        if late:
            return CLERK.doubts(Reason.CLIENT_SATURATED, f"{_where(run)}: {late}")
    for run in (each for each in serve.loads if each.arm == "baseline"):
        for _, what in _findings(run, serve, rules):
            return CLERK.doubts(Reason.INFRASTRUCTURE, f"{_where(run)}: {what}")
    return None


def _bench_doubt(run: LoadFacts) -> str:
    """Return what went wrong that is not the engine's doing; empty when nothing did."""
    if run.exit_code is None or run.exit_code <= KILLED or run.was_cancelled:
        how = "was ended" if run.was_cancelled else f"ended by signal {-(run.exit_code or 0)}"
        return f"the load generator {how}"
    if not run.completed and not run.errors:
        return "no request was sent"
    lost = run.asked - run.completed - sum(run.errors.values())
    if run.exit_code and not run.errors and lost > 0:
        return f"the load generator lost {lost} requests"
    return ""


def _lateness(run: LoadFacts, rules: Believability) -> str:
    """Return how late the client was, if that is too much to believe its times."""
    lag_ms, latencies = run.client_lag_p99_ms, run.latency_ms
    if not latencies:
        return ""
    if lag_ms is None:
        return "the client itself started requests at an unknown time"
    if lag_ms <= rules.client_lag_share_at_most * median(latencies):
        return ""
    return f"the client itself started requests up to {lag_ms:.1f} ms late"


def _findings(run: LoadFacts, serve: ServeFacts, rules: Believability) -> Iterator[Finding]:
    for rule in _RULES:
        found = rule(run, serve, rules)
        if found is not None:
            yield found


def _errors(run: LoadFacts, _: ServeFacts, rules: Believability) -> Finding | None:
    failed = run.asked - run.completed
    if failed <= rules.error_share_at_most * run.asked:
        return None
    kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(run.errors.items()))
    return Reason.REQUESTS_FAILED, f"{failed} of {run.asked} requests failed: {kinds or 'missing'}"


def _completeness(run: LoadFacts, _: ServeFacts, __: Believability) -> Finding | None:
    cut = run.completed - sum(run.whole)
    rows = {len(column) for column in (run.whole, run.told, run.arrivals)}
    if run.exit_code == 0 and run.is_complete and not cut and rows == {run.completed}:
        return None
    return Reason.RUN_INCOMPLETE, f"{cut} responses have no end; client exit {run.exit_code}"


def _lengths(run: LoadFacts, _: ServeFacts, rules: Believability) -> Finding | None:
    rows = zip(run.told, run.osl, run.osl_asked, strict=True)
    inexact = sum(bool(told) and got != asked for told, got, asked in rows)
    if inexact:
        return Reason.WRONG_LENGTH, f"{inexact} responses have not as many tokens as were asked for"
    off = sum(abs(got - asked) for got, asked in zip(run.osl, run.osl_asked, strict=True))
    share = off / max(1, sum(run.osl_asked))
    if share <= rules.osl_off_by_at_most:
        return None
    return Reason.WRONG_LENGTH, f"output lengths are off by {share:.1%} of what was asked"


def _chunks(run: LoadFacts, _: ServeFacts, rules: Believability) -> Finding | None:
    worst = max(got / max(1, chunks) for got, chunks in zip(run.osl, run.chunks, strict=True))
    if worst <= rules.tokens_per_chunk_at_most:
        return None
    return Reason.CHUNKED_STREAM, f"up to {worst:.1f} tokens a chunk"


def _arrivals(run: LoadFacts, serve: ServeFacts, rules: Believability) -> Finding | None:
    """Return whether even the responses that came most evenly were held back.

    A client that is late reads several tokens together, but not of every response; how many it does
    read together on this machine shows in the baseline. On a busy machine any client may be late by
    less than a moment, and nobody sees tokens that were held for less.
    """
    usual = [_together(other)[0] for other in _baselines(run, serve) if other.arrivals]
    most = _LATE_READS * max(rules.tokens_per_chunk_at_most, *usual, 0.0)
    tokens, held_ms = _together(run)
    if tokens <= most or held_ms <= _MOMENT_MS:
        return None
    return Reason.CHUNKED_STREAM, f"{tokens:.1f} tokens or more come at once, as a rule"


def _together(run: LoadFacts) -> tuple[float, float]:
    """Return how many tokens came at once, and after how many ms each time.

    They are of a response that came more evenly than nine in ten.
    """
    rows = zip(run.osl, run.latency_ms, run.arrivals, strict=True)
    ordered = sorted((got / max(1, times), ms / max(1, times)) for got, ms, times in rows)
    return ordered[int(_EVENLY * (len(ordered) - 1))] if ordered else (0.0, 0.0)


def _baselines(run: LoadFacts, serve: ServeFacts) -> Iterator[LoadFacts]:
    """Yield the baseline's runs under the same traffic."""
    for other in serve.loads:
        if other.arm == "baseline" and other.traffic == run.traffic:
            yield other


def _variety(run: LoadFacts, serve: ServeFacts, rules: Believability) -> Finding | None:
    if run.distinct_responses < rules.distinct_share_at_least * run.completed:
        return Reason.REPETITIVE, f"{run.distinct_responses} of {run.completed} responses differ"
    usual = [other.compressed_share for other in _baselines(run, serve) if other.compressed_share]
    least = rules.compressed_over_baseline_at_least * median(usual) if usual else 0.0
    if run.compressed_share is None or run.compressed_share < least:
        return Reason.REPETITIVE, "the responses repeat themselves far more than the baseline's"
    return None


_RULES: tuple[Callable[[LoadFacts, ServeFacts, Believability], Finding | None], ...] = (
    _errors,
    _completeness,
    _lengths,
    _chunks,
    _arrivals,
    _variety,
)


def _where(run: LoadFacts) -> str:
    return f"{run.traffic} on the {run.arm}, round {run.restart + 1}"
