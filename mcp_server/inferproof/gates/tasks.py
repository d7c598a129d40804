"""Tasks: the candidate answers no fewer of the contract's tasks than the baseline, within a margin.

Both arms were asked the same in one job. Only tasks that both could be asked count:

1. a task that the baseline answered and the candidate refused or broke off, or did not score
   though it scores others: `requests_failed`;
2. one that either arm left without any answer, or that could not be read: not measured;
3. the loss is beyond the margin, and more of the flips go against the candidate than chance allows
   (McNemar's exact test, one-sided 2.5 %): `worse_answers`;
4. the lower end of the interval of the difference (paired bootstrap over tasks, 2.5 %) is within
   the margin: passed. Without a single flip, what so many tasks could have missed stands for it;
5. else the tasks are too few to tell: `below_resolution`, with how many would do.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferproof.core.service import Tasks
from inferproof.core.serving_facts import ServeFacts, TaskFacts
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase

CLERK = Clerk("tasks", __name__)
ALPHA = 0.025
RESAMPLES, MOST_DRAWS, LEAST_RESAMPLES = 2000, 1_000_000, 200
SHOWN = 10
CHOICE = "choice"
JUDGED = frozenset({"right", "wrong"})
NOT_ASKED = frozenset({"absent", "unscored"})
LESS = "Compare the answers of both arms to the flipped tasks; look at what differs in numerics."
BROKEN = "Answer every task that the baseline answers; read the engine's log for these requests."
MORE = "A person adds tasks to the contract's file and seals it again, or widens the margin."


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Answers in pairs: how many, how many each arm alone got right, and the difference in shares.

    `low` is the lower end of the difference's interval; `chance` is McNemar's, of so many flips
    against the candidate if neither arm was better.
    """

    pairs: int
    candidate: float
    baseline: float
    lost: tuple[str, ...]
    won: tuple[str, ...]
    difference: float
    low: float
    chance: float


class TasksDone:
    """Passes when the candidate is non-inferior to the baseline on the contract's tasks."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the candidate answers as well as the baseline."""
        serve, rules = case.evidence.serve, case.contract.tasks
        candidate, baseline = (_results(serve, arm) for arm in ("candidate", "baseline"))
        if rules is None or serve is None or not candidate or not baseline:
            return CLERK.unmeasured("the answers of both arms to the tasks")
        unanswered = {"failed", "absent"} | _withheld(serve, candidate)
        broken = [
            each
            for each, result in baseline.items()
            if result in JUDGED and candidate.get(each, "failed") in unanswered
        ]
        shows = case.shows_numbers and not rules.private
        if broken:
            named = f": {_ids(broken)}" if shows else ""
            reason = f"{len(broken)} of {len(baseline)} tasks are not answered{named}"
            return CLERK.fails(Reason.REQUESTS_FAILED, reason, BROKEN)
        missing = [
            each for each in baseline if not _is_settled(candidate.get(each), baseline[each])
        ]
        if missing:
            what = f"{len(missing)} of {len(baseline)} tasks in both arms"
            return CLERK.unmeasured(f"{what}: {_ids(missing)}" if shows else what)
        found = compare(candidate, baseline, bits=serve.bits)
        if found is None:
            return CLERK.unmeasured("any task that both arms could be asked")
        return _verdict(found, rules, numbers=case.shows_numbers, ids=shows)


def compare(
    candidate: Mapping[str, str], baseline: Mapping[str, str], *, bits: str
) -> Comparison | None:
    """Return how two arms' answers compare; None if there is no pair. Repeatable from `bits`."""
    names = [
        each
        for each, result in baseline.items()
        if result in JUDGED and candidate.get(each) in JUDGED
    ]
    if not names:
        return None
    right = {each: (candidate[each] == "right", baseline[each] == "right") for each in names}
    lost = tuple(each for each, (ours, theirs) in right.items() if theirs and not ours)
    won = tuple(each for each, (ours, theirs) in right.items() if ours and not theirs)
    pairs = len(names)
    return Comparison(
        pairs=pairs,
        candidate=sum(ours for ours, _ in right.values()) / pairs,
        baseline=sum(theirs for _, theirs in right.values()) / pairs,
        lost=lost,
        won=won,
        difference=(len(won) - len(lost)) / pairs,
        low=min(_bootstrap_low(pairs, len(lost), len(won), bits), -unseen_share(pairs)),
        chance=mcnemar(len(lost), len(won)),
    )


def mcnemar(lost: int, won: int) -> float:
    """Return the chance of `lost` or more of these flips if each went either way alike."""
    flips = lost + won
    return sum(math.comb(flips, each) for each in range(lost, flips + 1)) / 2**flips


def unseen_share(pairs: int) -> float:
    """Return the largest share of losses of which so many pairs would show none, at 2.5 %."""
    return 1 - ALPHA ** (1 / pairs)


def pairs_needed(margin: float, flips: float) -> int:
    """Return how many pairs would settle a margin if they flipped as often as those measured."""
    without = math.ceil(math.log(ALPHA) / math.log(1 - margin))
    return max(without, math.ceil(flips * (1.96 / margin) ** 2))


def _bootstrap_low(pairs: int, lost: int, won: int, bits: str) -> float:
    drawn = random.Random(f"{bits}:tasks")  # noqa: S311 - not a secret
    times = max(LEAST_RESAMPLES, min(RESAMPLES, MOST_DRAWS // pairs))
    weights = (lost, pairs - lost - won, won)
    means = sorted(sum(drawn.choices((-1, 0, 1), weights, k=pairs)) / pairs for _ in range(times))
    return means[int(ALPHA * times)]


def _verdict(found: Comparison, rules: Tasks, *, numbers: bool, ids: bool) -> Verdict:
    told = f"{found.pairs} tasks"
    if numbers:
        told = (
            f"{found.candidate:.1%} of {told} right, baseline {found.baseline:.1%}, difference "
            f"{found.difference:+.1%}, at least {found.low:+.1%}; flips: {len(found.lost)} lost, "
            f"{len(found.won)} won, McNemar {found.chance:.2g}"
        )
    if ids and found.lost:
        told = f"{told}; lost: {_ids(found.lost)}"
    if found.difference < -rules.margin and found.chance <= ALPHA:
        reason = f"worse than the baseline by more than {rules.margin:g}: {told}"
        return CLERK.fails(Reason.WORSE_ANSWERS, reason, LESS)
    if found.low >= -rules.margin:
        return CLERK.passes(f"within {rules.margin:g} of the baseline: {told}")
    flips = (len(found.lost) + len(found.won)) / found.pairs
    needed = pairs_needed(rules.margin, flips)
    reason = f"too few tasks for a margin of {rules.margin:g}, about {needed} needed: {told}"
    return CLERK.doubts(Reason.BELOW_RESOLUTION, reason, MORE)


def _results(serve: ServeFacts | None, arm: str) -> dict[str, str]:
    """Return each task's result in one arm; of several starts, the first."""
    found: dict[str, str] = {}
    for facts in serve.tasks if serve else ():
        if facts.arm == arm and _is_table(facts):
            found = {**dict(zip(facts.ids, facts.results, strict=True)), **found}
    return found


def _withheld(serve: ServeFacts, candidate: Mapping[str, str]) -> set[str]:
    """Return that `unscored` is a refusal, where the engine gave scores for other choices."""
    kinds = {
        each: kind
        for facts in serve.tasks
        if _is_table(facts)
        for each, kind in zip(facts.ids, facts.kinds, strict=True)
    }
    scores = any(kinds[each] == CHOICE and result in JUDGED for each, result in candidate.items())
    return {"unscored"} if scores else set()


def _is_table(facts: TaskFacts) -> bool:
    return len(facts.ids) == len(facts.results) == len(facts.kinds) == len(facts.digests)


def _is_settled(candidate: str | None, baseline: str) -> bool:
    """Return whether a task was judged in both arms, or could not be asked of one."""
    if baseline in NOT_ASKED or candidate in NOT_ASKED:
        return True
    return baseline in JUDGED and candidate in JUDGED


def _ids(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
