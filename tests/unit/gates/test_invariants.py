"""What holds for every gate, whatever it judges."""

import ast
import importlib
import inspect
import json
import sys
from typing import cast

import pytest
from pydantic import JsonValue, ValidationError

from inferproof.core.values import Outcome, Reason, Value, Verdict
from inferproof.gates import FIDELITY_GATES, GATES, LOAD_GATES, current_digests, judge_all, overall
from inferproof.gates.base import Case
from inferproof.gates.source import covered, gate_digest
from unit.gates.cases import GONE, VERDICTS, at, case_of, changed, honest, honest_tree, paths, put

GRADE = ("evidence", "grade")
# Labels and context: they explain a measurement but are none, so a pass may lack them.
CONTEXT = frozenset({"stale_of", "incidents", "command", "artefacts", "versions"})
CONTEXT_OF_MUTANTS = frozenset({"dims", "seconds"})
GRADE_PATHS = list(paths(at(honest_tree(), GRADE), GRADE))


def outcome_of(tree: JsonValue) -> Outcome | None:
    """Return the overall outcome, or None when the evidence does not even parse."""
    try:
        case = case_of(tree)
    except ValidationError:
        return None
    return overall(judge_all(case))[0]


def is_context(path: tuple[str, ...]) -> bool:
    return bool(CONTEXT & set(path) or ("mutants" in path and CONTEXT_OF_MUTANTS & set(path)))


def test_the_honest_case_passes_every_gate() -> None:
    verdicts = judge_all(honest())
    assert [verdict.outcome for verdict in verdicts] == [Outcome.PASS] * len(GATES)


@pytest.mark.parametrize("value", [None, GONE], ids=["null", "gone"])
def test_a_missing_measurement_neither_passes_nor_blames_the_candidate(value: JsonValue) -> None:
    wrong: list[str] = []
    for path in GRADE_PATHS:
        if not is_context(path):
            tree = honest_tree()
            put(tree, path, value)
            if outcome_of(tree) in (Outcome.PASS, Outcome.FAIL):
                wrong.append(".".join(path))
    assert wrong == []


def test_an_emptied_collection_never_passes() -> None:
    passed: list[str] = []
    for path in GRADE_PATHS:
        node = at(honest_tree(), path)
        if is_context(path) or not node or not isinstance(node, (list, dict)):
            continue
        tree = honest_tree()
        put(tree, path, [] if isinstance(node, list) else {})
        if outcome_of(tree) is Outcome.PASS:
            passed.append(".".join(path))
    assert passed == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_does_not_parse(number: str) -> None:
    for path in GRADE_PATHS:
        if isinstance(at(honest_tree(), path), float):
            tree = honest_tree()
            put(tree, path, float(number.replace("Infinity", "inf")))
            assert outcome_of(tree) is None, path


def _with_nan_inside(value: object) -> object:
    """Return `value` with every float NaN, built past validation."""
    if isinstance(value, float):
        return float("nan")
    if isinstance(value, tuple):
        return tuple(_with_nan_inside(item) for item in cast("tuple[object, ...]", value))
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {name: _with_nan_inside(item) for name, item in items}
    if isinstance(value, Value):
        inside = {name: _with_nan_inside(item) for name, item in value}
        return value.model_copy(update=inside)
    return value


def test_nan_that_got_past_the_door_still_never_passes() -> None:
    case = honest()
    evidence = case.evidence.model_copy(update={"grade": _with_nan_inside(case.evidence.grade)})
    verdicts = judge_all(case.model_copy(update={"evidence": evidence}))
    judged_by_numbers = {"armed", "numerics", "speed", "physics"}
    passed = {verdict.gate for verdict in verdicts if verdict.outcome is Outcome.PASS}
    assert not passed & judged_by_numbers
    assert overall(verdicts)[0] is Outcome.INCONCLUSIVE


def test_judging_twice_and_from_stored_json_gives_equal_verdicts() -> None:
    for path in VERDICTS.glob("*.json"):
        case = honest() if path.name == "base.json" else _golden_case(path.read_text())
        stored = Case.model_validate_json(case.model_dump_json(by_alias=True))
        assert judge_all(case) == judge_all(case) == judge_all(stored), path.name


def _golden_case(text: str) -> Case:
    return changed(json.loads(text)["changes"])


def test_gate_names_are_unique() -> None:
    assert len({gate.name for gate in GATES}) == len(GATES)


def test_each_gate_signs_with_its_own_digest() -> None:
    for verdict in judge_all(honest()):
        assert verdict.gate_digest == gate_digest(f"inferproof.gates.{verdict.gate}")
    assert len({verdict.gate_digest for verdict in judge_all(honest())}) == len(GATES)


def test_the_present_digests_are_those_that_verdicts_carry() -> None:
    carried = {v.gate: v.gate_digest for v in judge_all(honest())}
    assert carried.items() <= current_digests().items()


def test_a_gate_without_source_cannot_be_named() -> None:
    with pytest.raises(ImportError, match="no source"):
        gate_digest("sys")


def test_no_gate_passes_on_no_evidence() -> None:
    nothing = changed({"evidence.grade": None})
    verdicts = [gate.judge(nothing) for gate in GATES]
    assert {verdict.outcome for verdict in verdicts} == {Outcome.INCONCLUSIVE}


def test_a_digest_covers_every_rule_that_the_gate_uses() -> None:
    assert "inferproof.gates.numerics" in covered("inferproof.gates.armed")
    assert "inferproof.gates.intervals" in covered("inferproof.gates.speed")
    assert "inferproof.core.evidence" in covered("inferproof.gates.conduct")


def test_a_digest_covers_the_home_of_every_name_in_the_gate() -> None:
    for gate in GATES:
        module = sys.modules[type(gate).__module__]
        homes = {str(getattr(value, "__module__", "")) for value in vars(module).values()}
        ours = {home for home in homes if home.startswith("inferproof.")}
        assert ours <= set(covered(module.__name__))


def test_gates_import_only_core_and_what_cannot_reach_the_world() -> None:
    allowed = {"ast", "collections", "dataclasses", "functools", "importlib", "inferproof"}
    allowed |= {"itertools", "math", "random", "re", "statistics", "typing"}
    judges = {type(gate).__module__ for gate in (*GATES, *FIDELITY_GATES, *LOAD_GATES)}
    shared = (f"inferproof.gates.{name}" for name in ("base", "source", "intervals", "ratios"))
    for name in (*judges, *shared):
        module = importlib.import_module(name)
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] in allowed, name
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, name


def verdict(outcome: Outcome) -> Verdict:
    code = Reason.ACCEPTED if outcome is Outcome.PASS else Reason.NOT_MEASURED
    return Verdict(gate="any", gate_digest="0" * 64, outcome=outcome, code=code, reason="")


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ("pass pass", "pass"),
        ("pass approval_required", "approval_required"),
        ("approval_required inconclusive", "inconclusive"),
        ("inconclusive approval_required fail", "fail"),
    ],
)
def test_the_worst_outcome_decides(outcomes: str, expected: str) -> None:
    verdicts = [verdict(Outcome(name)) for name in outcomes.split()]
    assert overall(verdicts)[0] == expected


def test_nothing_judged_is_an_error_and_no_pass() -> None:
    with pytest.raises(ValueError, match="empty"):
        overall(())


def test_practice_commands_get_no_verdict() -> None:
    assert judge_all(changed({"evidence.kind": "profile"})) == ()


@pytest.mark.parametrize("name", ["rms_ratio", "p999_ratio"])
def test_practice_shows_figures_and_grading_does_not(name: str) -> None:
    worse: dict[str, JsonValue] = {f"evidence.grade.calls.2.outputs.y.{name}": 777.0}
    graded = judge_all(changed(worse))
    practice = judge_all(changed({**worse, "evidence.purpose": "practice"}))
    assert "777" not in " ".join(verdict.reason + verdict.next_step for verdict in graded)
    assert "777x" in " ".join(verdict.reason for verdict in practice)
