"""Fidelity: on every path an engine computes what the reference model does, as near as its floor.

Each path is judged by itself, prompts before generated tokens. The first rule that refuses names
the case:

1. on any path, rows answered without what the engine gives elsewhere, with a text that is not what
   its tokens spell, or ended where the model goes on: `requests_failed`;
2. the prompt's own tokens are likelier than under the reference by more than chance: `leaks`;
3. a generated token is further than `tie_nats` from the reference's best; on path `beyond`, which
   leaves the range that the contract names, one in a hundred may be: `wrong_tokens`;
4. further from the reference than the trusted path by more than the contract and chance allow:
   `unfaithful`. By the mean over the path, over a bin of positions, and over the positions after
   block boundaries; by the share of rows beyond multiples of the floor's median and p99; by max,
   unless coarser rounding carries the trusted path about as far on that very row, which then
   counts in no mean.

The floor is the trusted path's own error on the same rows; for tails, that of all paths together
where it is more. Few rows with heavy tails scatter, so means and shares must be beyond the bar by
`SIGMAS` standard errors. So must what the chosen tokens of all paths together lose, held against
the trusted path's choices. Of an engine without log-probabilities that and rule 3 are all: it sees
coarse weights and not fine ones, and the verdict says so.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from inferproof.core.service import Fidelity
from inferproof.core.serving_facts import FidelityFacts, ServeFacts, TokenScores
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase, measured
from inferproof.gates.losses import LEAST_FLOOR_NATS, SIGMAS, mean_beyond
from inferproof.gates.power import noticed, power_of, together

CLERK = Clerk("fidelity", __name__)
PROMPT_PATHS = ("prompt", "prefix")
GENERATED = ("decode", "batch", "reuse", "beyond", "mixed")
IN_ORDER = (*PROMPT_PATHS, *GENERATED, "split")
BLOCK = 16
AFTER_BOUNDARY = 4
LEAST_SCORED_SHARE = 0.8
LEAST_TAIL_NATS = 1e-5
MOST_ROW_NATS = 1.0  # a floor that fell off an edge excuses no more; a second look may
BIN_SIGMAS = 2.0
LEAK_SIGMAS = 4.0
LEAST_LEAK_NATS = 1e-3
BEYOND_OFF_SHARE = 0.01
NEXT_STEPS = {
    Reason.REQUESTS_FAILED: "Answer every request whole, longer ones than the contract's too; give "
    "the text that the tokens spell, the true finish_reason, and finite log-probabilities for "
    "every token, or for none.",
    Reason.LEAKS: "Look for a mask that shows later tokens, or a position that is off by one.",
    Reason.WRONG_TOKENS: "Compare that path with the others: what it alone does (cache slots, "
    "positions, batching, prefix reuse, sampling) is where to look.",
    Reason.QUANTISATION_NOT_ALLOWED: "Serve the weights as they are, or ask the person in charge "
    "to allow that precision and seal again.",
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
        if serve.quantisation not in ("none", *case.contract.fidelity.allowed_quantisation):
            code = Reason.QUANTISATION_NOT_ALLOWED
            reason = f"{serve.quantisation} is declared, which the contract does not allow"
            return CLERK.fails(code, reason, NEXT_STEPS[code])
        findings = [finding for facts in found for finding in examine(facts, case)]
        refusal = next((each for each in findings if each.code in NEXT_STEPS), None)
        if refusal:
            figures = f": {refusal.figures}" if case.shows_numbers and refusal.figures else ""
            reason = f"{refusal.code.value} on {refusal.where}{figures}"
            return CLERK.fails(refusal.code, reason, NEXT_STEPS[refusal.code])
        if findings:
            return CLERK.unmeasured(findings[0].where)
        return CLERK.passes(f"{_praise(found)}{_power(found, case)}")


def examine(facts: FidelityFacts, case: ServiceCase) -> list[Finding]:
    """Return what is to be said against one start, the cause first."""
    return find_faults(facts.scores, case.contract.fidelity)


def find_faults(scores: Sequence[TokenScores], rules: Fidelity) -> list[Finding]:
    """Return what is to be said against these rows, by path and then by rule."""
    scores = sorted(scores, key=lambda table: IN_ORDER.index(table.path))
    tables = [table for table in scores if _is_table(table)]
    pooled = [value for table in tables if table.path != "split" for value in table.floor_kl]
    found = [each for table in scores for each in _unreadable(table)]
    for table in tables:
        found += [
            *_leaks(table),
            *_wrong_tokens(table, rules),
            *_unfaithful(table, rules, pooled),
        ]
    found += _poor_choices(tables, rules)
    return found or [*_missing(scores, rules), *_too_few(tables, rules)]


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
        "log-probabilities, so only its tokens were judged, which weights of 8 bits hardly change"
    )


def _power(found: Sequence[FidelityFacts], case: ServiceCase) -> str:
    """Return what the rows can show: in practice of each path, else of the least of them."""
    serve, rules = case.evidence.serve, case.contract.fidelity
    bits = serve.bits if serve else ""
    tables = [table for facts in found for table in facts.scores if table.kl]
    powers = [each for each in (power_of(table, rules, bits) for table in tables) if each]
    if not powers:
        return ""
    if case.shows_numbers:
        return "; " + "; ".join(each.words for each in powers)
    least = max(each.noticed for each in powers)
    return f"; a mean error of {least:.2g} floors would be noticed on any path"


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
    rows = zip(table.sequence, table.position, table.tie_gap_nats, strict=False)
    off = [row for row in rows if row[2] > rules.tie_nats]
    if len(off) > _forgiven(table):
        sequence, position, gap = off[0]
        where = f"path {table.path}, sequence {sequence}, position {position}"
        figures = f"the token is {gap:.2g} nats worse than the best, {rules.tie_nats:g} allowed"
        yield Finding(Reason.WRONG_TOKENS, where, figures)


def _poor_choices(tables: Sequence[TokenScores], rules: Fidelity) -> Iterator[Finding]:
    """Yield what the chosen tokens of all paths lose beyond the trusted path's choices.

    Who always takes the worst of what is nearly a tie is near in every token and far in all.
    """
    told = [table for table in tables if table.path != "split"]
    losses = [
        row for table in told for row in zip(table.loss_nats, table.floor_loss_nats, strict=True)
    ]
    if figures := mean_beyond(losses, rules.mean_over_floor):
        yield Finding(Reason.UNFAITHFUL, "all paths by rule choice", figures)


def _forgiven(table: TokenScores) -> int:
    """Return how many tokens of a path may be off: a few where an engine need not be tuned."""
    return math.ceil(BEYOND_OFF_SHARE * len(table.position)) if table.path == "beyond" else 0


def _unfaithful(table: TokenScores, rules: Fidelity, pooled: Sequence[float]) -> Iterator[Finding]:
    if not table.kl:
        return
    usual = together(table)
    whole = list(zip(usual.kl, usual.floor_kl, strict=True))
    tail = max(p99(table.floor_kl), p99(pooled), LEAST_TAIL_NATS)
    median = max(statistics.median(table.floor_kl), LEAST_FLOOR_NATS)
    found = {
        "mean": mean_beyond(whole, rules.mean_over_floor),
        "median": _share_beyond(table.kl, rules.median_over_floor * median, 0.5),
        "p99": _share_beyond(table.kl, rules.p99_over_floor * tail, 0.01),
        "max": _row_beyond(table, rules, pooled),
    }
    for name, rows in _bins(usual, rules):
        found[name] = mean_beyond(rows, rules.bin_over_floor, BIN_SIGMAS)
    for rule, figures in found.items():
        if figures:
            yield Finding(Reason.UNFAITHFUL, f"path {table.path} by rule {rule}", figures)


def _row_beyond(table: TokenScores, rules: Fidelity, pooled: Sequence[float]) -> str:
    """Return the figures of a row that neither any floor nor its own second look explains."""
    floors = rules.max_over_floor * max(*table.floor_kl, *pooled, LEAST_TAIL_NATS)
    most = min(floors, MOST_ROW_NATS)
    shaken = table.shaken_kl or (0.0,) * len(table.kl)
    bars = [max(most, rules.p99_over_floor * each) for each in shaken]
    over, kl, bar = max((kl - bar, kl, bar) for kl, bar in zip(table.kl, bars, strict=True))
    return f"{kl:.2g} nats, {bar:.2g} allowed" if over > 0 else ""


def _share_beyond(kl: Sequence[float], bar: float, allowed: float) -> str:
    """Return the figures when more than the `allowed` share is beyond `bar`; empty when not."""
    beyond = sum(value > bar for value in kl)
    expected = allowed * len(kl)
    if beyond <= expected + SIGMAS * math.sqrt(expected * (1 - allowed)):
        return ""
    return f"{beyond} of {len(kl)} tokens beyond {bar:.2g} nats, {expected:.0f} expected at most"


def _bins(table: TokenScores, rules: Fidelity) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Yield the rows in each bin of positions, and those after block boundaries."""
    bins: dict[str, list[tuple[float, float]]] = {}
    for position, kl, floor in sorted(zip(table.position, table.kl, table.floor_kl, strict=True)):
        first = position // rules.bin_tokens * rules.bin_tokens
        bins.setdefault(f"positions {first}-{first + rules.bin_tokens - 1}", []).append((kl, floor))
        if position >= BLOCK and position % BLOCK < AFTER_BOUNDARY:
            bins.setdefault("after block boundaries", []).append((kl, floor))
    yield from bins.items()


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


def _too_few(tables: Sequence[TokenScores], rules: Fidelity) -> Iterator[Finding]:
    """Yield the paths on which an error would go unnoticed that must not."""
    for table in tables:
        if table.path != "split" and table.kl and noticed(table, rules) > rules.notices_at_most:
            yield Finding(Reason.NOT_MEASURED, f"enough tokens on path {table.path}")


def _is_table(table: TokenScores) -> bool:
    """Return whether the columns that a path must have are there, whole and finite."""
    rows = len(table.position)
    is_given = table.path == "prompt" or (table.path == "split" and table.kl)
    chosen = table.kl if is_given else table.tie_gap_nats
    pairs = (
        (table.kl, table.floor_kl),
        (table.loss_nats, table.floor_loss_nats),
        (table.nll_engine, table.nll_reference),
    )
    columns = (*chain(*pairs), table.shaken_kl, table.tie_gap_nats)
    even = all(len(column) in (0, rows) for column in columns)
    finite = all(measured(value) for column in columns for value in column)
    paired = all(len(first) == len(second) for first, second in pairs)
    return even and finite and paired and len(chosen) == rows == len(table.sequence)
