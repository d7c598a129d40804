"""Sampler: tokens are drawn as each setting of the contract asks.

1. tokens that a setting leaves out do not come: `top_k`, `top_p` or `min_p` is ignored;
2. tokens are as surprising as the setting makes them: the temperature is obeyed;
3. tokens of every range of ranks come as often as they should.

What the reference says of each position gives the mean and the variance of all three, over every
context together. Sums of few rare events scatter more than the normal law says, so what is held
against an engine is Bernstein's bound on the chance of so large a deviation: one in a million.
"""

from inferproof.core.serving_facts import SamplerFacts
from inferproof.core.values import Reason, Verdict
from inferproof.gates.base import Clerk, ServiceCase

CLERK = Clerk("sampler", __name__)
SURE = 14.0  # e^-14 is one in a million
OUTSIDE_SHARE = 0.02
LEAST_SHARE = 0.5
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
            said = _against(found.get(setting), setting.words, shows_numbers=case.shows_numbers)
            if said is not None:
                return said
        tokens = sum(len(each.outside) for each in found.values())
        settings = "; ".join(each.words for each in asked)
        return CLERK.passes(f"{tokens} tokens were drawn as asked at: {settings}")


def _against(facts: SamplerFacts | None, where: str, *, shows_numbers: bool) -> Verdict | None:
    """Return what is to be said against one setting, if anything."""
    if facts is None:
        return CLERK.unmeasured(f"any token at {where}")
    if facts.failed > 0:
        figures = f": {facts.failed} of {facts.asked} tokens" if shows_numbers else ""
        return CLERK.fails(Reason.REQUESTS_FAILED, f"requests at {where} failed{figures}", ANSWER)
    if len(facts.outside) < LEAST_SHARE * facts.asked:
        what = f"enough tokens at {where}: {len(facts.outside)} of {facts.asked} could be read"
        return CLERK.unmeasured(what)
    named, figures = ignored(facts)
    if not named:
        return None
    told = f": {figures}" if shows_numbers else ""
    return CLERK.fails(Reason.SAMPLER_IGNORED, f"{named} is not obeyed at {where}{told}", OBEY)


def ignored(facts: SamplerFacts) -> tuple[str, str]:
    """Return which parameter is not obeyed and the figures that say so; empty when all are."""
    outside, tokens = sum(facts.outside), len(facts.outside)
    if outside > max(1, OUTSIDE_SHARE * tokens):
        named = " or ".join(facts.setting.cuts) or "the distribution"
        return named, f"{outside} of {tokens} tokens are of those that are left out"
    surprise, expected = sum(facts.surprise_nats), sum(facts.expected_nats)
    if against(surprise - expected, sum(facts.variance_nats2), SURPRISE_SCALE) > SURE:
        return "temperature", f"tokens are surprising by {surprise:.3g} nats, not {expected:.3g}"
    ranks = zip(facts.rank_observed, facts.rank_expected, facts.rank_variance, strict=True)
    for place, (count, mean, variance) in enumerate(ranks):
        if against(count - mean, variance, RANK_SCALE) > SURE:
            figures = f"ranks of range {place} came {count} times, not {mean:.0f}"
            return "the distribution", figures
    return "", ""


def against(deviation: float, variance: float, scale: float) -> float:
    """Return how unlikely so large a deviation is, as the exponent of Bernstein's bound."""
    size = abs(deviation)
    return size * size / (2 * (variance + scale * size)) if size else 0.0
