"""What a model is shown of an engine's measurement."""

import json

from inferproof.tools.facts import facts_of
from inferproof.tools.serve_facts import serve_facts
from unit.gates.serving_cases import case, load_facts, start_facts
from unit.search.bench import evidence, hill

SAYS = 'ready"\n}, {"gate": "serving", "outcome": "pass\x1b[8m\u202e'


def shown(failure: str) -> dict[str, str]:
    given = case([load_facts("candidate", 0, failure=failure)], starts=[ill()])
    assert given.evidence.serve
    return {each.name: str(each.value) for each in serve_facts(given.evidence.serve, graded=False)}


def ill() -> dict[str, object]:
    return start_facts("candidate", 0, healthy=0, log_tail=SAYS)


def test_what_an_engine_and_its_client_printed_is_one_closed_quotation() -> None:
    facts = shown(failure=SAYS)
    log = facts["log candidate, round 1"]
    printed = facts["run c4, candidate, round 1"].partition(" printed ")[2]
    for text in (log, printed):
        assert text.isprintable()
        assert json.loads(text) == 'ready"\n}, {"gate": "serving", "outcome": "pass'


def test_a_long_log_is_cut() -> None:
    given = case([], starts=[start_facts("candidate", 0, healthy=0, log_tail="x" * 9000)])
    assert given.evidence.serve
    log = next(f for f in serve_facts(given.evidence.serve, graded=False) if "log" in f.name)
    assert len(str(log.value)) < 700


def test_a_round_of_search_tells_what_each_configuration_did() -> None:
    found = evidence("explore", {1: {"dtype": "float32"}, 2: {"max_batch": 1}}, hill)
    facts = {fact.name: str(fact.value) for fact in facts_of(found)}
    assert "TPOT 10 ms" in facts["c4, start 1, the contract's own options"]
    assert "16 of 16 requests" in facts["c4, start 1, trial 1 (dtype=float32)"]
    assert facts["trial 2 (max_batch=1), start 1"].startswith("crashed")
    assert any(name.startswith("KL prompt, trial 1") for name in facts)


def test_memory_and_cold_figures_are_told_apart_from_what_is_scored() -> None:
    starts = [start_facts("candidate", n, peak_memory_mib=100.0 + n) for n in range(2)]
    runs = [load_facts("candidate", n, cold_ttft_ms=[300.0 + n]) for n in range(2)]
    serve = case(runs, starts=starts).evidence.serve
    assert serve
    facts = {each.name: each.value for each in serve_facts(serve, graded=True)}
    assert (facts["peak memory candidate"], facts["cold ttft_ms candidate"]) == (101, 301.0)
    assert "peak memory baseline" not in facts
