"""A gate that has not refused the mutants may pass nothing."""

from inferproof.core.values import Outcome, Reason
from inferproof.gates.armed import Armed, survivors
from unit.gates.cases import GONE, changed, honest

MUTANT = "evidence.grade.mutants.1"
NEAR = {f"{MUTANT}.calls.0.outputs.y.rms_ratio": 1.0, f"{MUTANT}.calls.0.outputs.y.p999_ratio": 1.0}


def test_a_survivor_is_named() -> None:
    verdict = Armed().judge(changed(NEAR))
    assert (verdict.outcome, verdict.code) == (Outcome.INCONCLUSIVE, Reason.NOT_ARMED)
    assert "half" in verdict.reason
    assert "zeros" not in verdict.reason


def test_one_refused_call_of_many_is_enough() -> None:
    near = changed(NEAR).evidence.grade
    far = honest().evidence.grade
    assert near
    assert near.mutants
    assert far
    assert far.mutants
    both = near.mutants[1].model_copy(
        update={"calls": near.mutants[1].calls + far.mutants[1].calls}
    )
    assert survivors(honest().contract, (far.mutants[0], both)) == ()


def test_a_mutant_that_never_ran_is_a_survivor() -> None:
    assert "half" in Armed().judge(changed({MUTANT: GONE})).reason


def test_an_unmeasured_mutant_is_a_survivor() -> None:
    unmeasured = {f"{MUTANT}.calls.0.outputs.y.rms_ratio": None}
    assert Armed().judge(changed(unmeasured)).code is Reason.NOT_ARMED


def test_an_unchecked_call_refuses_no_mutant() -> None:
    assert Armed().judge(changed({f"{MUTANT}.calls.0.checked": False})).code is Reason.NOT_ARMED


def test_an_earlier_arming_run_counts_for_the_same_contract_only() -> None:
    armed = honest().evidence.grade
    assert armed
    bare = changed({"evidence.grade.mutants": None})
    stranger = armed.model_copy(update={"contract_seen": "7" * 64})
    assert Armed().judge(bare).code is Reason.NOT_ARMED
    assert Armed().judge(bare.model_copy(update={"arming": armed})).outcome is Outcome.PASS
    assert Armed().judge(bare.model_copy(update={"arming": stranger})).code is Reason.NOT_ARMED
