"""Fidelity: on every path an engine computes what the reference model does, as near as its floor.

Each path is judged by itself, by these rules in this order; the first that refuses names the case:

1. rows answered without what the engine gives elsewhere: `requests_failed`;
2. the prompt's own tokens are likelier than under the reference by more than chance: `leaks`;
3. a generated token is further than `tie_nats` from the reference's best: `wrong_tokens`;
4. mean, median, p99, max, a bin of positions or the positions after block boundaries are further
   from the reference than the trusted path by more than the contract allows: `unfaithful`.

The floor of a rule is the trusted path's figure on the same rows. Tails are compared with those of
all paths together where that is more, since a tail of few rows says little. An engine without
log-probabilities is judged by rule 3 alone, and the verdict says so.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from inferproof.core.service import Fidelity
from inferproof.core.serving_facts import FidelityFacts, ServeFacts, TokenScores
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase, measured

CLERK = Clerk("fidelity", __name__)
GENERATED = ("decode", "batch", "reuse")
PROMPT_PATHS = ("prompt", "prefix")
BLOCK = 16
AFTER_BOUNDARY = 4
LEAST_BIN_ROWS = 8
LEAST_SCORED_SHARE = 0.8
LEAST_FLOOR_NATS = 1e-6
LEAST_TAIL_NATS = 1e-5
LEAK_SIGMAS = 4.0
LEAST_LEAK_NATS = 1e-3
NEXT_STEPS = {
    Reason.REQUESTS_FAILED: "Answer every request whole; give finite log-probabilities for every "
    "token, or for none.",
    Reason.LEAKS: "Look for a mask that shows later tokens, or a position that is off by one.",
    Reason.WRONG_TOKENS: "Compare that path with the others: what it alone does (cache slots, "
    "positions, batching, prefix reuse, sampling) is where to look.",
    Reason.UNFAITHFUL: "Compare layer by layer with the reference on a practice check, which "
    "explains; look at what only this path or these positions use.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule says against one path. `figures` explain it."""

    code: Reason
    where: str
    figures: str = ""


class FidelityGate:
    """Passes when every start of the candidate was faithful on every path."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the engine computes what its model says."""
        serve = case.evidence.serve
        found = _of_candidate(serve)
        if serve is None or not found:
            return CLERK.unmeasured("how far the engine is from the reference")
        findings = [finding for facts in found for finding in examine(facts, case)]
        refusal = next((each for each in findings if each.code in NEXT_STEPS), None)
        if refusal:
            figures = f": {refusal.figures}" if case.shows_numbers and refusal.figures else ""
            reason = f"{refusal.code.value} on {refusal.where}{figures}"
            return CLERK.fails(refusal.code, reason, NEXT_STEPS[refusal.code])
        if findings:
            return CLERK.unmeasured(findings[0].where)
        return CLERK.passes(_praise(found))


def examine(facts: FidelityFacts, case: ServiceCase) -> list[Finding]:
    """Return what is to be said against one start, the worst rule first."""
    return find_faults(facts.scores, case.contract.fidelity)


def find_faults(scores: Sequence[TokenScores], rules: Fidelity) -> list[Finding]:
    """Return what is to be said against these rows, the worst rule first, then by path."""
    tables = [table for table in scores if _is_table(table)]
    pooled = [value for table in tables for value in table.floor_kl]
    found = [
        *(each for table in scores for each in _unreadable(table)),
        *(each for table in tables for each in _leaks(table)),
        *(each for table in tables for each in _wrong_tokens(table, rules)),
        *(each for table in tables for each in _unfaithful(table, rules, pooled)),
    ]
    return found or list(_missing(scores, rules))


def _of_candidate(serve: ServeFacts | None) -> list[FidelityFacts]:
    return [each for each in serve.fidelity if each.arm == "candidate"] if serve else []


def _praise(found: Sequence[FidelityFacts]) -> str:
    rows = sum(len(table.position) for facts in found for table in facts.scores)
    paths = ", ".join(dict.fromkeys(table.path for facts in found for table in facts.scores))
    text = f"{rows} tokens on {paths} are as near to the reference as the trusted path's"
    if all(table.kl for facts in found for table in facts.scores):
        return text
    return (
        f"{rows} tokens on {paths} are among the reference's best; the engine gives no "
        "log-probabilities, so only its tokens were judged"
    )


def _unreadable(table: TokenScores) -> Iterator[Finding]:
    if table.unreadable > 0:
        figures = f"{table.unreadable} of {table.asked} tokens"
        yield Finding(Reason.REQUESTS_FAILED, f"path {table.path}", figures)


def _leaks(table: TokenScores) -> Iterator[Finding]:
    gains = [r - e for e, r in zip(table.nll_engine, table.nll_reference, strict=True)]
    if len(gains) < 2:
        return
    mean = statistics.fmean(gains)
    chance = LEAK_SIGMAS * statistics.stdev(gains) / math.sqrt(len(gains))
    if mean > max(chance, LEAST_LEAK_NATS):
        figures = f"prompt tokens are {mean:.2g} nats likelier than they can be"
        yield Finding(Reason.LEAKS, f"path {table.path}", figures)


def _wrong_tokens(table: TokenScores, rules: Fidelity) -> Iterator[Finding]:
    for sequence, position, gap in zip(
        table.sequence, table.position, table.tie_gap_nats, strict=False
    ):
        if gap > rules.tie_nats:
            where = f"path {table.path}, sequence {sequence}, position {position}"
            figures = f"the token is {gap:.2g} nats worse than the best, {rules.tie_nats:g} allowed"
            yield Finding(Reason.WRONG_TOKENS, where, figures)
            return


def _unfaithful(table: TokenScores, rules: Fidelity, pooled: Sequence[float]) -> Iterator[Finding]:
    if not table.kl:
        return
    for rule, error, bar in (*_whole(table, rules, pooled), *_bins(table, rules, pooled)):
        if error > bar:
            figures = f"KL {error:.2g} nats, {bar:.2g} allowed"
            yield Finding(Reason.UNFAITHFUL, f"path {table.path} by rule {rule}", figures)


Bar = tuple[str, float, float]


def _whole(table: TokenScores, rules: Fidelity, pooled: Sequence[float]) -> Iterator[Bar]:
    mean, median, kl, floor = statistics.fmean, statistics.median, table.kl, table.floor_kl
    yield "mean", mean(kl), rules.mean_over_floor * max(mean(floor), LEAST_FLOOR_NATS)
    yield "median", median(kl), rules.median_over_floor * max(median(floor), LEAST_FLOOR_NATS)
    tails: tuple[tuple[str, Callable[[Sequence[float]], float], float], ...] = (
        ("p99", p99, rules.p99_over_floor),
        ("max", max, rules.max_over_floor),
    )
    for rule, tail, factor in tails:
        yield rule, tail(kl), factor * max(tail(floor), tail(pooled), LEAST_TAIL_NATS)


def _bins(table: TokenScores, rules: Fidelity, pooled: Sequence[float]) -> Iterator[Bar]:
    """Yield the mean over each bin of positions, and over those after each block boundary."""
    rows = list(zip(table.position, table.kl, table.floor_kl, strict=True))
    least = max(statistics.fmean(table.floor_kl), statistics.fmean(pooled), LEAST_FLOOR_NATS)
    bins: dict[str, list[tuple[float, float]]] = {}
    for position, kl, floor in sorted(rows):
        first = position // rules.bin_tokens * rules.bin_tokens
        bins.setdefault(f"positions {first}-{first + rules.bin_tokens - 1}", []).append((kl, floor))
        if position >= BLOCK and position % BLOCK < AFTER_BOUNDARY:
            bins.setdefault("after block boundaries", []).append((kl, floor))
    for name, members in bins.items():
        if len(members) >= LEAST_BIN_ROWS:
            error = statistics.fmean(kl for kl, _ in members)
            floor = statistics.fmean(floor for _, floor in members)
            yield name, error, rules.bin_over_floor * max(floor, least)


def p99(values: Iterable[float]) -> float:
    """Return the value that one in a hundred exceeds."""
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def _missing(scores: Sequence[TokenScores], rules: Fidelity) -> Iterator[Finding]:
    """Yield what was not measured of what the contract asks."""
    rows = {table.path: len(table.position) for table in scores}
    if not any(rows.get(path) for path in PROMPT_PATHS):
        yield Finding(Reason.NOT_MEASURED, "any token of a prompt")
    for path in GENERATED:
        if not rows.get(path):
            yield Finding(Reason.NOT_MEASURED, f"any token on path {path}")
    for table in scores:
        scored = len(table.position)
        if table.unanswered or not _is_table(table):
            yield Finding(Reason.NOT_MEASURED, f"all tokens on path {table.path}")
        elif scored < LEAST_SCORED_SHARE * table.asked:
            text = f"tokens on path {table.path}: {scored} of {table.asked} read"
            yield Finding(Reason.NOT_MEASURED, text)
    if sum(rows.values()) < LEAST_SCORED_SHARE * rules.tokens:
        text = f"enough tokens: {sum(rows.values())} scored, {rules.tokens} needed"
        yield Finding(Reason.NOT_MEASURED, text)


def _is_table(table: TokenScores) -> bool:
    """Return whether the columns that a path must have are there, whole and finite."""
    rows = len(table.position)
    chosen = table.tie_gap_nats if table.path != "prompt" else table.kl
    columns = (table.kl, table.floor_kl, table.tie_gap_nats, table.nll_engine, table.nll_reference)
    even = all(len(column) in (0, rows) for column in columns)
    finite = all(measured(value) for column in columns for value in column)
    paired = len(table.kl) == len(table.floor_kl)
    return even and finite and paired and len(chosen) == rows == len(table.sequence)
