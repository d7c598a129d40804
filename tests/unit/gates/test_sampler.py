"""The sampler's rules, on tokens whose chances are known."""

import math
import random

import pytest

from inferproof.core.quality import Sampler, SamplerSetting
from inferproof.core.serving_facts import SamplerFacts
from inferproof.core.values import Outcome, Reason, Verdict
from inferproof.gates.sampler import SamplerGate
from unit.gates import serving_cases

TOKENS = 160
COLD = SamplerSetting(temperature=0.5)
FEW = SamplerSetting(top_k=4)
CHANCES = (0.5, 0.25, 0.15, 0.1)
MEAN = -sum(p * math.log(p) for p in CHANCES)
VARIANCE = sum(p * math.log(p) ** 2 for p in CHANCES) - MEAN**2


def drawn(
    setting: SamplerSetting, *, chances: tuple[float, ...] = CHANCES, **changes: object
) -> SamplerFacts:
    """Return what comes when tokens are drawn with `chances`; the reference expects CHANCES.

    Every token comes as often as its chance says, so that no draw decides a test.
    """
    counts = [round(TOKENS * each) for each in chances]
    tokens = [token for token, count in enumerate(counts) for _ in range(count)]
    random.Random(1).shuffle(tokens)
    honest: dict[str, object] = {
        "setting": setting,
        "asked": len(tokens),
        "failed": 0,
        "outside": [0] * len(tokens),
        "surprise_nats": [-math.log(CHANCES[each]) for each in tokens],
        "expected_nats": [MEAN] * len(tokens),
        "variance_nats2": [VARIANCE] * len(tokens),
        "rank_observed": counts,
        "rank_expected": [TOKENS * each for each in CHANCES],
        "rank_variance": [TOKENS * each * (1 - each) for each in CHANCES],
        "seconds": 0.1,
    }
    return SamplerFacts.model_validate(honest | changes)


def judged(*facts: SamplerFacts) -> Verdict:
    """Return what the gate says where both settings are asked for."""
    case = serving_cases.case()
    assert case.evidence.serve
    serve = case.evidence.serve.model_copy(update={"sampler": facts})
    contract = case.contract.model_copy(update={"sampler": Sampler(settings=(COLD, FEW))})
    evidence = case.evidence.model_copy(update={"serve": serve})
    return SamplerGate().judge(case.model_copy(update={"contract": contract, "evidence": evidence}))


def test_tokens_drawn_as_asked_pass() -> None:
    verdict = judged(drawn(COLD), drawn(FEW))
    assert verdict.outcome is Outcome.PASS
    assert "320 tokens" in verdict.reason


def test_a_contract_that_asks_for_no_setting_passes() -> None:
    assert SamplerGate().judge(serving_cases.case()).outcome is Outcome.PASS


def test_tokens_that_a_setting_leaves_out_name_its_parameter() -> None:
    verdict = judged(drawn(COLD), drawn(FEW, outside=[1] * 4 + [0] * (TOKENS - 4)))
    assert verdict.code is Reason.SAMPLER_IGNORED
    assert verdict.reason.startswith("top_k is not obeyed at temperature 1, top_k 4")


def test_a_token_in_a_hundred_over_the_edge_is_rounding() -> None:
    assert judged(drawn(COLD), drawn(FEW, outside=[1] * 3 + [0] * 157)).outcome is Outcome.PASS


@pytest.mark.parametrize("chances", [(0.25, 0.25, 0.25, 0.25), (0.9, 0.06, 0.03, 0.01)])
def test_another_temperature_is_named(chances: tuple[float, ...]) -> None:
    verdict = judged(drawn(COLD, chances=chances), drawn(FEW))
    assert verdict.code is Reason.SAMPLER_IGNORED
    assert "temperature is not obeyed" in verdict.reason


def test_ranks_that_come_too_often_are_the_distribution() -> None:
    swapped = [round(TOKENS * each) for each in (0.25, 0.5, 0.15, 0.1)]
    verdict = judged(drawn(COLD, rank_observed=swapped), drawn(FEW))
    assert "the distribution is not obeyed" in verdict.reason


def test_refused_requests_fail_and_unread_tokens_prove_nothing() -> None:
    assert judged(drawn(COLD), drawn(FEW, failed=40)).code is Reason.REQUESTS_FAILED
    assert judged(drawn(COLD), drawn(FEW, outside=[0] * 155)).outcome is Outcome.INCONCLUSIVE
    assert judged(drawn(COLD), drawn(FEW, outside=[0] * 158)).outcome is Outcome.PASS
    assert judged(drawn(COLD)).code is Reason.NOT_MEASURED


def test_few_rare_tokens_more_than_expected_are_chance() -> None:
    honest = drawn(COLD)
    rare = {"rank_observed": (*honest.rank_observed, 12)}
    mean = {
        "rank_expected": (*honest.rank_expected, 3.0),
        "rank_variance": (*honest.rank_variance, 3.0),
    }
    assert judged(drawn(COLD, **rare, **mean), drawn(FEW)).outcome is Outcome.PASS


NATS = ("surprise_nats", "expected_nats", "variance_nats2")
RANKS = ("rank_observed", "rank_expected", "rank_variance")


def changed(changes: dict[str, object]) -> SamplerFacts:
    """Return honest facts with other columns."""
    return SamplerFacts.model_validate(drawn(FEW).model_dump() | changes)


@pytest.mark.parametrize(
    "changes",
    [
        dict.fromkeys(NATS, ()),
        {name: [0.0] * 9 for name in NATS},
        {"variance_nats2": ()},
        dict.fromkeys(RANKS, ()),
        {"rank_observed": (0,), "rank_expected": (0.0,), "rank_variance": (0.0,)},
        {"rank_variance": ()},
        {"asked": 0, "outside": ()} | dict.fromkeys((*NATS, *RANKS), ()),
        {"asked": 40, "outside": [0] * 40},
    ],
    ids=lambda changes: ",".join(changes),
)
def test_a_rule_without_data_has_not_passed(changes: dict[str, object]) -> None:
    verdict = judged(drawn(COLD), changed(changes))
    assert verdict.code is Reason.NOT_MEASURED, verdict


def test_ends_of_text_that_come_as_they_would_are_read_and_others_hide_tokens() -> None:
    honest: dict[str, object] = {
        "outside": [0] * 140,
        "ends": 20,
        "ends_expected": 18.0,
        "ends_variance": 15.0,
    }
    verdict = judged(drawn(COLD), changed(honest))
    assert verdict.outcome is Outcome.PASS, verdict
    hides: dict[str, object] = honest | {"ends_expected": 0.1, "ends_variance": 0.1}
    verdict = judged(drawn(COLD), changed(hides))
    assert verdict.code is Reason.SAMPLER_IGNORED
    assert "ends of text came 20 times" in verdict.reason
