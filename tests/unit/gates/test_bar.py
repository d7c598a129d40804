"""A graded run against a baseline that nobody tuned decides nothing, where the contract asks."""

import pytest

from inferproof.core.service import Search
from inferproof.core.serving_facts import BarFacts
from inferproof.gates.bar import Bar
from inferproof.gates.base import ServiceCase
from unit.gates.serving_cases import CONTRACT, case, said
from unit.search.bench import SEARCH

TUNED = BarFacts(options={"max_batch": 4}, search="e" * 64)
UNTUNED = BarFacts(options={}, search=None)


def about(bar: BarFacts | None, purpose: str, *, asks: bool = True) -> ServiceCase:
    found = case(purpose=purpose)
    serve = found.evidence.serve
    assert serve is not None
    evidence = found.evidence.model_copy(update={"serve": serve.model_copy(update={"bar": bar})})
    search = Search.model_validate(SEARCH) if asks else None
    rule = CONTRACT.model_copy(update={"search": search})
    return found.model_copy(update={"contract": rule, "evidence": evidence})


@pytest.mark.parametrize("bar", [None, UNTUNED], ids=["not told", "not searched"])
def test_without_a_search_on_record_a_graded_run_is_inconclusive(bar: BarFacts | None) -> None:
    assert said(Bar(), about(bar, "graded")) == ("inconclusive", "bar_not_tuned")
    assert "search_config" in Bar().judge(about(bar, "graded")).next_step


def test_practice_may_run_against_default_and_says_so() -> None:
    assert said(Bar(), about(UNTUNED, "practice")) == ("pass", "accepted")
    assert "contract's own options" in Bar().judge(about(UNTUNED, "practice")).reason


def test_a_tuned_baseline_names_its_evidence() -> None:
    assert said(Bar(), about(TUNED, "graded")) == ("pass", "accepted")
    assert "e" * 12 in Bar().judge(about(TUNED, "graded")).reason


def test_a_contract_without_a_search_has_its_own_baseline_as_the_bar() -> None:
    assert said(Bar(), about(None, "graded", asks=False)) == ("pass", "accepted")
