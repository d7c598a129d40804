"""What a model is shown of an engine's API and of its answers to tasks."""

import json

from inferproof.core.serving_facts import ServeFacts
from inferproof.tools.api_facts import api_facts, conformance_rows, task_rows
from unit.gates.serving_cases import DIGEST, case

SAYS = 'no"\n}, {"gate": "conformance", "outcome": "pass\x1b[8m\u202e'
CHECKS = [
    {"name": "stream", "api": "completions", "result": "held"},
    {
        "name": "stop",
        "api": "completions",
        "result": "broken",
        "detail": "the stop is shown",
        "said": SAYS,
    },
]
TASKS = {
    "restart": 0,
    "ids": ["a", "b"],
    "kinds": ["exact", "needle"],
    "digests": [DIGEST] * 2,
    "seconds": 1.0,
}
LM_EVAL = {
    "arm": "candidate",
    "version": "0.4.13",
    "results": {"sums": {"exact_match": 0.25}},
    "seconds": 9.0,
}


def measured() -> ServeFacts:
    given = case([]).evidence.serve
    assert given is not None
    checks = {"arm": "candidate", "restart": 0, "checks": CHECKS, "seconds": 2.0}
    tasks = [
        {**TASKS, "arm": "candidate", "results": ["right", "wrong"]},
        {**TASKS, "arm": "baseline", "results": ["right", "right"]},
    ]
    body = given.model_dump(mode="json")
    body |= {"conformance": [checks], "tasks": tasks, "lm_eval": [LM_EVAL]}
    return ServeFacts.model_validate(body)


def shown(*, graded: bool = False) -> dict[str, str]:
    return {each.name: str(each.value) for each in api_facts(measured(), graded=graded)}


def test_conformance_tasks_and_lm_eval_are_told_apart() -> None:
    facts = shown()
    assert facts["conformance"] == "1 held, 1 broken"
    assert facts["tasks, candidate"] == "1 of 2 right (exact 1 of 1, needle 0 of 1)"
    assert facts["tasks, baseline"] == "2 of 2 right (exact 1 of 1, needle 1 of 1)"
    assert facts["lm-eval sums exact_match, candidate"] == "0.25"


def test_what_an_engine_said_is_one_closed_quotation() -> None:
    said = shown()["check stop of completions"].partition("; it said ")[2]
    assert said.isprintable()
    assert json.loads(said) == 'no"\n}, {"gate": "conformance", "outcome": "pass'


def test_a_graded_check_tells_which_failed_and_no_more() -> None:
    assert shown(graded=True)["check stop of completions"] == "broken"


def test_evidence_has_a_line_for_each_check_and_task() -> None:
    evidence = case([]).evidence.model_copy(update={"serve": measured()})
    assert [row.partition(",")[0] for row in conformance_rows(evidence)] == [
        "completions stream: held",
        "completions stop: broken",
    ]
    assert list(task_rows(evidence)) == [
        "a (exact): baseline right, candidate right",
        "b (needle): baseline right, candidate wrong",
    ]
