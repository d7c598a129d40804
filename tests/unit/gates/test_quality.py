"""Quality: a candidate's output against the baseline's, on items whose errors are known."""

from typing import cast

import pytest

from inferproof.core.quality import Quality
from inferproof.core.serving_facts import QualityFacts
from inferproof.core.values import Outcome, Reason, Verdict
from inferproof.gates.quality import QualityGate
from unit.gates import serving_cases
from unit.gates.quality_facts import ITEMS, ROWS, Tree, arm_facts, quality_facts


def judged(facts: Tree | None, **rules: object) -> Verdict:
    """Return what the gate says of these facts under a contract with some rules exchanged."""
    case = serving_cases.case()
    assert case.evidence.serve
    found = None if facts is None else QualityFacts.model_validate(facts)
    serve = case.evidence.serve.model_copy(update={"quality": found})
    contract = case.contract.model_copy(update={"quality": Quality.model_validate(rules)})
    evidence = case.evidence.model_copy(update={"serve": serve})
    return QualityGate().judge(case.model_copy(update={"contract": contract, "evidence": evidence}))


def test_an_engine_as_good_as_the_baseline_passes_by_both_rules() -> None:
    for rule in ("no_worse_than_baseline", "no_worse_than_original"):
        verdict = judged(quality_facts(), rule=rule)
        assert verdict.outcome is Outcome.PASS, verdict
        assert verdict.reason.startswith(rule.replace("_", " "))


@pytest.mark.parametrize(
    ("worse", "metric"),
    [({"kl": 0.02}, "KL"), ({"nll": 0.05}, "likelihood"), ({"misses": 0.2}, "best tokens")],
)
def test_an_engine_that_is_worse_by_more_than_the_margin_is_refused(
    worse: dict[str, float], metric: str
) -> None:
    verdict = judged(quality_facts(candidate=arm_facts("candidate", **worse)))
    assert verdict.code is Reason.QUALITY_WORSE
    assert metric in verdict.reason


def test_a_loss_that_the_baseline_has_too_is_no_loss_against_it_but_against_the_original() -> None:
    both = quality_facts(
        candidate=arm_facts("candidate", kl=0.1, nll=0.2, misses=0.2),
        baseline=arm_facts("baseline", kl=0.1, nll=0.2, misses=0.2),
    )
    assert judged(both, top1_margin=0.1, kl_margin_nats=0.05).outcome is Outcome.PASS
    verdict = judged(both, rule="no_worse_than_original", top1_margin=0.1)
    assert verdict.code is Reason.QUALITY_WORSE


def test_too_small_a_margin_for_so_few_items_proves_nothing() -> None:
    verdict = judged(quality_facts(candidate=arm_facts("candidate", misses=0.03)))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.BELOW_RESOLUTION)


def test_an_output_that_differs_from_the_baselines_waits_for_a_person_even_when_it_is_good() -> (
    None
):
    verdict = judged(quality_facts(apart=40.0))
    assert (verdict.outcome, verdict.code) == (Outcome.APPROVAL_REQUIRED, Reason.OUTPUT_DIFFERS)
    assert "times the floor" in verdict.reason
    assert judged(quality_facts(apart=2.0)).outcome is Outcome.PASS


def test_another_declared_precision_without_logprobs_waits_for_a_person() -> None:
    silent = quality_facts(declared=("nvfp4", "none")) | {"apart": None}
    assert judged(silent).code is Reason.OUTPUT_DIFFERS
    same = quality_facts(declared=("nvfp4", "nvfp4")) | {"apart": None}
    assert judged(same).outcome is Outcome.PASS


def tables(arm: Tree) -> list[Tree]:
    """Return the tables of an arm."""
    return cast("list[Tree]", arm["scores"])


def without(arm: Tree, *columns: str) -> Tree:
    """Return an arm whose tables lack columns, as of an engine without log-probabilities."""
    empty: Tree = dict.fromkeys(columns, ())
    return arm | {"scores": [each | empty for each in tables(arm)]}


def test_an_engine_without_logprobs_is_judged_by_its_best_tokens() -> None:
    silent = without(arm_facts("candidate"), "kl", "nll_engine", "nll_reference")
    verdict = judged(quality_facts(candidate=silent))
    assert verdict.outcome is Outcome.PASS
    assert "KL and negative log-likelihood not seen" in verdict.reason
    worse = without(arm_facts("candidate", misses=0.2), "kl", "nll_engine", "nll_reference")
    assert judged(quality_facts(candidate=worse)).code is Reason.QUALITY_WORSE


def test_what_is_missing_is_inconclusive() -> None:
    assert judged(None).code is Reason.NOT_MEASURED
    alone = quality_facts()
    one = cast("list[Tree]", alone["arms"])[:1]
    assert judged(alone | {"arms": one}).code is Reason.NOT_MEASURED
    torn = arm_facts("candidate")
    first = tables(torn)[0]
    short: Tree = torn | {"scores": [first | {"agrees": [1] * (ITEMS * ROWS - 1)}]}
    assert judged(quality_facts(candidate=short)).code is Reason.NOT_MEASURED
    unread: Tree = torn | {"scores": [first | {"unreadable": 1}]}
    assert judged(quality_facts(candidate=unread)).code is Reason.NOT_MEASURED


def lacking(arm: Tree, rows: int) -> Tree:
    """Return an arm that was asked more rows in each table than were scored."""
    more: list[Tree] = [each | {"asked": cast("int", each["asked"]) + rows} for each in tables(arm)]
    return arm | {"scores": more}


def test_rows_that_cannot_be_scored_count_against_the_arm_that_lacks_them() -> None:
    hides = lacking(arm_facts("candidate"), 20)
    for rule in ("no_worse_than_baseline", "no_worse_than_original"):
        verdict = judged(quality_facts(candidate=hides), rule=rule)
        assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.BELOW_RESOLUTION)
        assert "97.0% of the candidate's" in verdict.reason


def test_rows_that_both_arms_lack_alike_and_a_few_that_one_lacks_are_no_loss() -> None:
    both = [lacking(arm_facts(arm), 40) for arm in ("candidate", "baseline")]
    verdict = judged(quality_facts(candidate=both[0], baseline=both[1]))
    assert verdict.outcome is Outcome.PASS, verdict
    assert "94.1% of the candidate's and 94.1% of the baseline's rows scored" in verdict.reason
    few = lacking(arm_facts("candidate"), 1)
    assert judged(quality_facts(candidate=few)).outcome is Outcome.PASS


@pytest.mark.parametrize("arm", ["candidate", "baseline"])
def test_an_arm_that_lacks_more_than_a_tenth_is_not_measured(arm: str) -> None:
    both = {each: arm_facts(each) for each in ("candidate", "baseline")}
    both[arm] = lacking(both[arm], 100)
    verdict = judged(quality_facts(candidate=both["candidate"], baseline=both["baseline"]))
    assert verdict.code is Reason.NOT_MEASURED
    assert f"86.5% of the {arm}'s" in verdict.reason
