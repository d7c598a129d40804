"""Sampler: tokens are drawn as each setting of the contract asks.

1. tokens that a setting leaves out do not come: `top_k`, `top_p` or `min_p` is ignored;
2. tokens are as surprising as the setting makes them: the temperature is obeyed;
3. tokens of every range of ranks come as often as they should;
4. ends of text, which are no tokens to be judged, come no more often than they would.

What the reference says of each position gives the mean and the variance of all three, over every
context together. Sums of few rare events scatter more than the normal law says, so what is held
against an engine is Bernstein's bound on the chance of so large a deviation: one in a million.

What could not be read has not passed: no more tokens may be unread than may be left-out ones, and a
rule without data is not obeyed but not measured.
"""

from inferproof.core.serving_facts import SamplerFacts
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase

CLERK = Clerk("sampler", __name__)
SURE = 14.0  # e^-14 is one in a million
OUTSIDE_SHARE = 0.02
LEAST_KNOWN_SHARE = 0.25  # of the tokens read; where the model may end, a cut is not certain
RANK_SCALE, SURPRISE_SCALE = 1 / 3, 1.0  # of a count at most one; of a tail that falls as e^-x
OBEY = "Apply every sampling parameter that a request names, and refuse those that you do not have."
ANSWER = "Answer requests with sampling parameters as you answer greedy ones."


class SamplerGate:
    """Passes when the tokens of each setting are drawn from what the reference would draw from."""

    name = CLERK.gate

    def judge(self, case: ServiceCase) -> Verdict:
        """Return whether the engine obeys what requests say of drawing."""
        serve, asked = case.evidence.serve, case.contract.sampler.settings
        found = {each.setting: each for each in serve.sampler} if serve else {}
        if not asked:
            return CLERK.passes("the contract asks for no setting")
        for setting in asked:
            facts, least = found.get(setting), case.contract.sampler.tokens
            said = _against(facts, setting.words, least, shows_numbers=case.shows_numbers)
            if said is not None:
                return said
        tokens = sum(len(each.outside) for each in found.values())
        settings = "; ".join(each.words for each in asked)
        return CLERK.passes(f"{tokens} tokens were drawn as asked at: {settings}")


def _against(
    facts: SamplerFacts | None, where: str, least: int, *, shows_numbers: bool
) -> Verdict | None:
    """Return what is to be said against one setting, if anything."""
    if facts is None:
        return CLERK.unmeasured(f"any token at {where}")
    if facts.failed > 0:
        figures = f": {facts.failed} of {facts.asked} tokens" if shows_numbers else ""
        return CLERK.fails(Reason.REQUESTS_FAILED, f"requests at {where} failed{figures}", ANSWER)
    named, figures = ignored(facts)
    if named:
        told = f": {figures}" if shows_numbers else ""
        return CLERK.fails(Reason.SAMPLER_IGNORED, f"{named} is not obeyed at {where}{told}", OBEY)
    lacking = unread(facts, least)
    return CLERK.unmeasured(f"{lacking} at {where}") if lacking else None


def unread(facts: SamplerFacts, least: int) -> str:
    """Return what the rules had too little to judge by; empty when it was enough."""
    asked, read = max(facts.asked, least), len(facts.outside)
    if asked - read - facts.ends > max(1, OUTSIDE_SHARE * asked) or not read:
        return f"enough tokens: {read} and {facts.ends} ends of {asked} could be read"
    nats = (facts.surprise_nats, facts.expected_nats, facts.variance_nats2)
    ranks = (facts.rank_observed, facts.rank_expected, facts.rank_variance)
    if min(map(len, nats)) < max(1, LEAST_KNOWN_SHARE * read):
        return "how surprising enough tokens are"
    if not sum(facts.rank_observed):
        return "the ranks of tokens"
    even = all(len({len(each) for each in columns}) == 1 for columns in (nats, ranks))
    return "" if even else "columns of one length"


def ignored(facts: SamplerFacts) -> tuple[str, str]:
    """Return which parameter is not obeyed and the figures that say so; empty when all are."""
    outside, tokens = sum(facts.outside), len(facts.outside)
    if outside > max(1, OUTSIDE_SHARE * tokens):
        named = " or ".join(facts.setting.cuts) or "the distribution"
        return named, f"{outside} of {tokens} tokens are of those that are left out"
    surprise, expected = sum(facts.surprise_nats), sum(facts.expected_nats)
    if against(surprise - expected, sum(facts.variance_nats2), SURPRISE_SCALE) > SURE:
        return "temperature", f"tokens are surprising by {surprise:.3g} nats, not {expected:.3g}"
    more = facts.ends - facts.ends_expected
    if more > 0 and against(more, facts.ends_variance, RANK_SCALE) > SURE:
        figures = f"ends of text came {facts.ends} times, not {facts.ends_expected:.0f}"
        return "the distribution", figures
    ranks = zip(facts.rank_observed, facts.rank_expected, facts.rank_variance, strict=False)
    for place, (count, mean, variance) in enumerate(ranks):
        if against(count - mean, variance, RANK_SCALE) > SURE:
            figures = f"ranks of range {place} came {count} times, not {mean:.0f}"
            return "the distribution", figures
    return "", ""


def against(deviation: float, variance: float, scale: float) -> float:
    """Return how unlikely so large a deviation is, as the exponent of Bernstein's bound."""
    size = abs(deviation)
    return size * size / (2 * (variance + scale * size)) if size else 0.0
