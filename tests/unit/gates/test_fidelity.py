"""The fidelity rules, on tables whose errors are known."""

import random
from collections.abc import Sequence

import pytest

from inferproof.core.candidate import Quantisation
from inferproof.core.service import Fidelity
from inferproof.core.serving_facts import FidelityFacts, ScoredPath, TokenScores
from inferproof.core.values import Outcome, Reason
from inferproof.gates.base import ServiceCase
from inferproof.gates.fidelity import FidelityGate, Finding, find_faults
from unit.gates import serving_cases

ROWS = 300
RULES = Fidelity(corpus="corpus.txt", lengths=(17, 64), tokens=1000, mutants=("leak_one",))
PATHS: tuple[ScoredPath, ...] = ("prompt", "decode", "batch", "reuse", "beyond", "mixed")


def noise(seed: str) -> list[float]:
    """Return errors as a low precision makes them: of any size, a few large."""
    drawn = random.Random(seed)
    return [1e-5 * drawn.lognormvariate(0, 1) for _ in range(ROWS)]


def table(path: ScoredPath, **changes: object) -> TokenScores:
    """Return an honest path's rows, with some columns exchanged."""
    nll = [2.0 + each for each in noise("nll")] if path == "prompt" else []
    honest: dict[str, object] = {
        "path": path,
        "asked": ROWS,
        "unreadable": 0,
        "unanswered": 0,
        "sequence": [0] * ROWS,
        "position": list(range(1, ROWS + 1)),
        "kl": noise(f"engine {path}"),
        "floor_kl": noise(f"floor {path}"),
        "tie_gap_nats": [] if path == "prompt" else [0.0] * ROWS,
        "nll_engine": nll,
        "nll_reference": nll,
    }
    return TokenScores.model_validate(honest | changes)


def judged(path: ScoredPath, **changes: object) -> Finding | None:
    """Return the first finding when one path of an honest engine is exchanged."""
    tables = [table(each, **(changes if each == path else {})) for each in PATHS]
    found = find_faults(tables, RULES)
    return found[0] if found else None


def scaled(values: Sequence[float], factor: float, places: range) -> list[float]:
    """Return `values` with those at `places` multiplied."""
    return [value * factor if at in places else value for at, value in enumerate(values)]


def test_an_engine_as_near_as_the_trusted_path_passes() -> None:
    assert judged("decode") is None


def test_an_error_everywhere_is_named_on_its_path() -> None:
    found = judged("batch", kl=scaled(noise("x"), 6, range(ROWS)))
    assert found
    assert (found.code, found.where) == (Reason.UNFAITHFUL, "path batch by rule mean")


def test_an_error_in_one_bin_of_positions_is_found() -> None:
    found = judged("decode", kl=scaled(noise("engine decode"), 30, range(127, 143)))
    assert found
    assert found.code is Reason.UNFAITHFUL


def test_one_token_far_off_is_found() -> None:
    found = judged("reuse", kl=scaled(noise("engine reuse"), 1e5, range(200, 201)))
    assert found
    assert found.where == "path reuse by rule max"


def test_a_row_that_rounding_carries_nearly_as_far_is_no_fault() -> None:
    far = scaled(noise("engine reuse"), 1e5, range(200, 201))
    for share, is_refused in ((0.5, False), (0.2, True)):
        shaken = [share * value if at == 200 else 0.0 for at, value in enumerate(far)]
        found = judged("reuse", kl=far, shaken_kl=shaken)
        assert bool(found) == is_refused


def test_a_floor_that_fell_off_an_edge_excuses_no_row_that_nothing_explains() -> None:
    one_far = [5.0 if at == 20 else 1e-4 for at in range(ROWS)]
    far = [40.0 if at == 200 else 1e-4 for at in range(ROWS)]
    found = judged("reuse", kl=far, floor_kl=one_far)
    assert found is not None
    assert found.where == "path reuse by rule max"


def test_an_engine_that_takes_the_worst_of_every_near_tie_is_found_by_its_choices() -> None:
    losses = [0.2 if at % 7 == 0 else 0.0 for at in range(ROWS)]
    found = judged("decode", loss_nats=losses, floor_loss_nats=[0.0] * ROWS)
    assert found is not None
    assert found.where == "all paths by rule choice"


def told_by_tokens(loss: float, *, every: int = 20) -> list[TokenScores]:
    """Return paths without log-probabilities: one choice in `every` is near a tie and differs."""
    floor = [0.02 if at % 20 == 0 else 0.0 for at in range(ROWS)]
    losses = [loss if at % every == 0 else 0.0 for at in range(ROWS)]
    bare: dict[str, object] = {"kl": [], "floor_kl": []}
    chosen = bare | {"loss_nats": losses, "floor_loss_nats": floor, "tie_gap_nats": losses}
    return [table("prefix", **chosen), *(table(each, **chosen) for each in PATHS[1:])]


def test_tokens_alone_show_an_engine_that_loses_more_by_its_choices_than_rounding_does() -> None:
    assert find_faults(told_by_tokens(0.02), RULES) == []
    found = find_faults(told_by_tokens(0.1, every=8), RULES)
    assert [each.where for each in found] == ["all paths by rule choice"]


def test_a_token_far_from_the_best_is_named_with_its_place() -> None:
    found = judged("decode", tie_gap_nats=[0.0] * 40 + [1.5] + [0.0] * (ROWS - 41))
    assert found
    assert found.code is Reason.WRONG_TOKENS
    assert found.where == "path decode, sequence 0, position 41"


def test_prompt_tokens_likelier_than_they_can_be_leak() -> None:
    found = judged("prompt", nll_engine=[1.9 + each for each in noise("nll")])
    assert found
    assert found.code is Reason.LEAKS


def test_dropped_rows_are_refused() -> None:
    found = judged("decode", unreadable=1)
    assert found
    assert found.code is Reason.REQUESTS_FAILED


def test_unanswered_rows_a_short_path_and_ragged_columns_are_not_measured() -> None:
    for changes in ({"unanswered": 1}, {"asked": 2 * ROWS}, {"kl": noise("short")[1:]}):
        found = judged("decode", **changes)
        assert found
        assert found.code is Reason.NOT_MEASURED


def test_a_path_that_is_missing_is_not_measured() -> None:
    for missing in PATHS:
        found = find_faults([table(each) for each in PATHS if each != missing], RULES)
        assert {each.code for each in found} == {Reason.NOT_MEASURED}


def test_beyond_the_contracts_range_one_token_in_a_hundred_may_be_off() -> None:
    near = judged("beyond", tie_gap_nats=[1.5] * 3 + [0.0] * (ROWS - 3))
    assert near is None
    far = judged("beyond", tie_gap_nats=[1.5] * 4 + [0.0] * (ROWS - 4))
    assert far
    assert far.code is Reason.WRONG_TOKENS


def declared(way: Quantisation, *allowed: Quantisation) -> ServiceCase:
    """Return an honest case whose candidate declares how it quantises."""
    case = serving_cases.case()
    serve = case.evidence.serve
    assert serve
    facts = FidelityFacts(
        arm="candidate", restart=0, lengths=(300,), scores=tuple(map(table, PATHS)), seconds=1
    )
    measured = serve.model_copy(update={"quantisation": way, "fidelity": (facts,)})
    rules = case.contract.fidelity.model_copy(update={"allowed_quantisation": allowed})
    return case.model_copy(
        update={
            "contract": case.contract.model_copy(update={"fidelity": rules}),
            "evidence": case.evidence.model_copy(update={"serve": measured}),
        }
    )


@pytest.mark.parametrize("way", ["int8_per_channel", "nvfp4"])
def test_a_declared_precision_passes_only_where_the_contract_allows_it(way: Quantisation) -> None:
    refused = FidelityGate().judge(declared(way, "bf16"))
    assert refused.code is Reason.QUANTISATION_NOT_ALLOWED
    assert FidelityGate().judge(declared(way, "bf16", way)).outcome is Outcome.PASS
    assert FidelityGate().judge(declared("none")).outcome is Outcome.PASS
