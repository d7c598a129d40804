"""An engine must have what its contract requires, and nothing of what it has may be wrong."""

from typing import get_args

import pytest

from inferproof.core.service import CheckName, Conformance
from inferproof.core.values import Verdict
from inferproof.gates.conformance import NO_CHATS, Conforms
from unit.gates.serving_cases import CONTRACT, Tree, case

NAMES: tuple[str, ...] = get_args(CheckName)
CHATS = tuple(name for name in NAMES if name not in NO_CHATS)
REQUIRED = Conformance().required


def checks(api: str = "completions", **results: str) -> list[Tree]:
    names = NAMES if api == "completions" else CHATS
    return [{"name": name, "api": api, "result": results.get(name, "held")} for name in names]


def judged(found: list[Tree], *, purpose: str = "practice", **rules: object) -> Verdict:
    facts = {"arm": "candidate", "restart": 0, "checks": found, "seconds": 1.0}
    given = case(purpose=purpose)
    body = given.model_dump(mode="json")
    body["contract"] = CONTRACT.model_dump(mode="json") | {"conformance": rules}
    body["evidence"]["serve"]["conformance"] = [facts] if found else []
    return Conforms().judge(type(given).model_validate(body))


def said(
    found: list[Tree], *, required: list[str] | None = None, chat: str = "optional"
) -> tuple[str, str]:
    verdict = judged(found, required=REQUIRED if required is None else required, chat=chat)
    return verdict.outcome.value, verdict.code.value


def test_an_engine_that_holds_every_check_passes() -> None:
    assert said(checks() + checks("chat")) == ("pass", "accepted")


@pytest.mark.parametrize("name", NAMES)
def test_a_feature_that_is_wrong_is_refused_required_or_not(name: str) -> None:
    assert said(checks(**{name: "broken"}), required=[]) == ("fail", "nonconforming")
    verdict = judged(checks(**{name: "broken"}))
    assert f"check {name} of completions" in verdict.reason
    assert verdict.next_step


@pytest.mark.parametrize("name", REQUIRED)
def test_a_required_feature_that_is_not_there_is_refused(name: str) -> None:
    assert said(checks(**{name: "absent"})) == ("fail", "nonconforming")
    assert said(checks(**{name: "absent"}), required=[]) == ("pass", "accepted")


@pytest.mark.parametrize("name", REQUIRED)
def test_a_required_check_that_was_not_made_proves_nothing(name: str) -> None:
    without = [each for each in checks() if each["name"] != name]
    assert said(without) == ("inconclusive", "not_measured")
    assert said(checks(**{name: "unmeasured"})) == ("inconclusive", "not_measured")
    assert said(without, required=[]) == ("pass", "accepted")


def test_what_a_model_cannot_have_is_not_asked_of_it() -> None:
    none = dict.fromkeys(CHATS, "not_applicable")
    assert said(checks(cancel="not_applicable") + checks("chat", **none), chat="required") == (
        "pass",
        "accepted",
    )


def test_chats_are_required_by_their_own_line() -> None:
    none = dict.fromkeys(CHATS, "absent")
    assert said(checks() + checks("chat", **none)) == ("pass", "accepted")
    assert said(checks() + checks("chat", **none), chat="required") == ("fail", "nonconforming")
    assert said(checks(), chat="required") == ("inconclusive", "not_measured")


def test_nothing_measured_is_no_pass() -> None:
    assert said([]) == ("inconclusive", "not_measured")


def test_the_first_of_several_faults_is_named() -> None:
    assert "check usage of" in judged(checks(usage="broken", cancel="broken")).reason


def test_a_graded_refusal_says_which_check_and_not_what_was_asked() -> None:
    found = checks()
    found[0] |= {"result": "broken", "detail": "where the model writes 'salt'", "said": "sugar"}
    assert "salt" in judged(found).reason
    graded = judged(found, purpose="graded").reason
    assert "salt" not in graded
    assert "check stream of completions" in graded
    assert "sugar" not in judged(found).reason
