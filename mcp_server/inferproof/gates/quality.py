"""Quality: what the candidate serves is no worse than what the baseline serves, item by item.

Both arms read the same windows and go on from them. Against the full-precision original, three
things are compared: KL, negative log-likelihood of the given text, share of positions where the
best token is another. The upper end of the one-sided 97.5 % interval of the mean difference over
items must be within the contract's margin. By the rule `no_worse_than_original` the candidate is
compared with the original itself.

What was asked and could not be scored counts against the arm: of an arm with more than a tenth of
it nothing is known, and for each row that the candidate lacks beyond the baseline's share, the
interval's upper end is as far as if it were one nat worse and its best token another.

Passing is not the end where both arms' outputs differ by more than the floor: a person approves
what changes the output.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from inferproof.core.quality import Quality
from inferproof.core.serving_facts import Arm, FidelityFacts, QualityFacts, TokenScores
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase, measured
from inferproof.gates.student import student

CLERK = Clerk("quality", __name__)
TAIL = 0.025
LEAST_ITEMS = 4
MOST_UNSCORED = 0.1
LEAST_FLOOR_NATS = 1e-6
MORE = "Ask the person in charge for more items or a wider margin."
BETTER = "Quantise less, or find what this engine computes less precisely than the baseline."
APPROVE = "A person compares the figures and approves, or keeps the baseline's precision."
ARMS: tuple[Arm, Arm] = ("candidate", "baseline")
KL, NLL, TOP1 = "KL", "negative log-likelihood", "share of other best tokens"
ItemMeans = Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How much worse the candidate is: the mean over items, and the ends of its interval."""

    metric: str
    mean: float
    low: float
    high: float
    items: int
    margin: float

    @property
    def words(self) -> str:
        """The difference as a reader writes it."""
        return (
            f"{self.metric} {self.mean:+.2g} ({self.low:+.2g} to {self.high:+.2g}) over "
            f"{self.items} items, {self.margin:g} allowed"
        )


class QualityGate:
    """Passes when no metric is worse than its margin, and both arms say the same."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the candidate's output is good enough to be served."""
        serve = case.evidence.serve
        found = serve.quality if serve else None
        rules = case.contract.quality
        if found is None or any(not _is_whole(each) for arm in found.arms for each in arm.scores):
            return CLERK.unmeasured("how good the output of both arms is")
        if any(unscored(found, arm) > MOST_UNSCORED for arm in ARMS):
            return CLERK.unmeasured(f"enough of what both arms were asked: {_scored(found)}")
        differences = list(compare(found, rules))
        if not {TOP1} <= {each.metric for each in differences}:
            return CLERK.unmeasured("enough items on both arms")
        words = [*(each.words for each in differences), _scored(found)]
        told = "; ".join(words) if case.shows_numbers else ""
        against = rules.rule.replace("_", " ")
        for each in differences:
            if each.low > each.margin:
                reason = f"{against}: {each.metric} is worse than that"
                return CLERK.fails(
                    Reason.QUALITY_WORSE, f"{reason}: {told}" if told else reason, BETTER
                )
        open_ = [each.metric for each in differences if not each.high <= each.margin]
        if open_:
            reason = f"not proved either way: {against}, by {' and '.join(open_)}"
            return CLERK.doubts(
                Reason.BELOW_RESOLUTION, f"{reason}: {told}" if told else reason, MORE
            )
        differs = apart(found, rules)
        if differs:
            return CLERK.asks(Reason.OUTPUT_DIFFERS, differs, APPROVE)
        seen = f"{against}{_not_seen(differences)}"
        return CLERK.passes(f"{seen}: {told}" if told else seen)


def compare(found: QualityFacts, rules: Quality) -> Iterator[Difference]:
    """Yield how much worse the candidate is by each metric that both arms give."""
    candidate = _arm(found, "candidate")
    baseline = _arm(found, "baseline")
    if candidate is None or baseline is None:
        return
    ours, theirs = _metrics(candidate, baseline), _metrics(baseline, candidate)
    if rules.rule == "no_worse_than_original":
        theirs = _perfect(candidate, baseline)
    lacking = max(0.0, unscored(found, "candidate") - unscored(found, "baseline"))
    margins = {KL: rules.kl_margin_nats, NLL: rules.nll_margin_nats, TOP1: rules.top1_margin}
    for metric, margin in margins.items():
        shared = sorted(ours[metric].keys() & theirs[metric].keys())
        if len(shared) >= max(LEAST_ITEMS, rules.items // 2):
            worse = [ours[metric][item] - theirs[metric][item] for item in shared]
            mean, low, high = interval(worse)
            yield Difference(
                metric=metric,
                mean=mean,
                low=low,
                high=high + lacking,
                items=len(shared),
                margin=margin,
            )


def unscored(found: QualityFacts, arm: Arm) -> float:
    """Return the share of what an arm was asked that could not be scored; 1 without anything."""
    tables = [table for each in found.arms if each.arm == arm for table in each.scores]
    asked = sum(max(table.asked, len(table.position)) for table in tables)
    return 1 - sum(len(table.position) for table in tables) / asked if asked else 1.0


def apart(found: QualityFacts, rules: Quality) -> str:
    """Return by how much both arms' outputs differ, if by more than the floor; else nothing."""
    declared = found.quantisation
    if found.apart is None:
        if declared["candidate"] == declared["baseline"]:
            return ""
        return (
            f"the candidate's weights are {declared['candidate']}, the baseline's "
            f"{declared['baseline']}; without log-probabilities the difference is not known"
        )
    rows = found.apart
    kl = _by_item(zip(rows.sequence, rows.kl, strict=True))
    floor = _by_item(zip(rows.sequence, rows.floor_kl, strict=True))
    over = [kl[item] - rules.differs_over_floor * floor[item] for item in kl]
    if len(over) < LEAST_ITEMS or interval(over)[1] <= LEAST_FLOOR_NATS:
        return ""
    distance, noise = statistics.fmean(rows.kl), statistics.fmean(rows.floor_kl)
    times = distance / max(noise, LEAST_FLOOR_NATS)
    return (
        f"the candidate's output differs from the baseline's by a KL of {distance:.2g} nats, "
        f"{times:.3g} times the floor, over {len(rows.kl)} positions"
    )


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean with the ends of its one-sided 97.5 % intervals, by Student over items."""
    mean = statistics.fmean(values)
    spread = statistics.stdev(values) / math.sqrt(len(values))
    half = student(TAIL, len(values) - 1) * spread
    return mean, mean - half, mean + half


def _not_seen(differences: Sequence[Difference]) -> str:
    """Return which metrics an arm without log-probabilities leaves unknown; empty if none."""
    lacking = [name for name in (KL, NLL) if name not in {each.metric for each in differences}]
    return f", {' and '.join(lacking)} not seen" if lacking else ""


def _scored(found: QualityFacts) -> str:
    shares = (f"{1 - unscored(found, arm):.1%} of the {arm}'s" for arm in ARMS)
    return f"{' and '.join(shares)} rows scored"


def _arm(found: QualityFacts, arm: Arm) -> FidelityFacts | None:
    return next((each for each in found.arms if each.arm == arm and each.scores), None)


def _metrics(arm: FidelityFacts, other: FidelityFacts) -> dict[str, ItemMeans]:
    """Return each metric's mean by item; of given text, only positions that both arms read."""
    places = _given(arm) & _given(other)
    rows = [row for table in arm.scores for row in _rows(table, places)]
    return {
        KL: _by_item((item, kl) for item, kl, _, _ in rows if kl is not None),
        NLL: _by_item((item, nll) for item, _, nll, _ in rows if nll is not None),
        TOP1: _by_item((item, 1.0 - agrees) for item, _, _, agrees in rows),
    }


def _perfect(arm: FidelityFacts, other: FidelityFacts) -> dict[str, ItemMeans]:
    """Return what the original itself has: no distance, and the likelihood that it gives."""
    own = _metrics(arm, other)
    places = _given(arm) & _given(other)
    text = (
        (item, nll)
        for table in arm.scores
        for item, position, nll in zip(
            table.sequence, table.position, table.nll_reference, strict=False
        )
        if (item, position) in places
    )
    return {
        KL: dict.fromkeys(own[KL], 0.0),
        NLL: _by_item(text),
        TOP1: dict.fromkeys(own[TOP1], 0.0),
    }


def _given(arm: FidelityFacts) -> set[tuple[int, int]]:
    return {
        place
        for table in arm.scores
        if table.path != "decode"
        for place in zip(table.sequence, table.position, strict=True)
    }


def _rows(
    table: TokenScores, places: set[tuple[int, int]]
) -> Iterator[tuple[int, float | None, float | None, float]]:
    """Yield item, KL, likelihood and agreement of each row that counts."""
    for at, place in enumerate(zip(table.sequence, table.position, strict=True)):
        if table.path == "decode" or place in places:
            kl = table.kl[at] if table.kl else None
            nll = table.nll_engine[at] if table.nll_engine else None
            yield place[0], kl, nll, float(table.agrees[at])


def _by_item(rows: Iterable[tuple[int, float]]) -> dict[int, float]:
    found: dict[int, list[float]] = defaultdict(list)
    for item, value in rows:
        found[item].append(value)
    return {item: statistics.fmean(values) for item, values in found.items()}


def _is_whole(table: TokenScores) -> bool:
    """Return whether all that was asked came, and is of the same length and finite."""
    rows = len(table.position)
    columns = (table.kl, table.nll_engine, table.nll_reference)
    even = len(table.sequence) == len(table.agrees) == rows > 0
    finite = all(measured(value) for column in columns for value in column)
    missing = table.unreadable + table.unanswered
    return even and finite and not missing and all(len(each) in (0, rows) for each in columns)
