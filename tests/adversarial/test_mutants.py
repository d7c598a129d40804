"""Faults of engines, replayed on live servers with prompts that nobody knew before."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from adversarial.mutants import DENSE, Bench, load_list, serving
from inferproof.gates.fidelity import NEXT_STEPS
from inferproof_remote.serving.faults import FAULTS
from tools.mix_experts import mix

LISTED = load_list()
CLEAN_RUNS = 20
ROWS = [(model, name) for model, told in LISTED.items() for name in told.must_detect]
HARMLESS = [(model, name) for model, told in LISTED.items() for name in told.harmless]
pytestmark = [pytest.mark.zoo, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"dense": DENSE, "experts": mix(DENSE, tmp_path_factory.mktemp("experts"))}


@pytest.fixture(scope="module")
def benches(models: dict[str, Path]) -> Iterator[dict[str, Bench]]:
    with serving(models["dense"]) as dense, serving(models["experts"]) as experts:
        yield {"dense": dense, "experts": experts}


@pytest.mark.parametrize(("model", "name"), ROWS)
def test_a_fault_on_the_list_is_refused(benches: dict[str, Bench], model: str, name: str) -> None:
    found = benches[model].findings(name)
    assert found
    assert found[0].code in NEXT_STEPS


@pytest.mark.parametrize(("model", "name"), HARMLESS)
def test_what_is_no_fault_is_not_refused(benches: dict[str, Bench], model: str, name: str) -> None:
    assert benches[model].findings(name) == []


# In bfloat16 a router asks another expert now and then, where two are as likely, and attention that
# rounds its scores looks elsewhere: an honest engine is then far off on that token.
@pytest.mark.parametrize("model", LISTED)
def test_clean_runs_in_bfloat16_raise_no_alarm(models: dict[str, Path], model: str) -> None:
    with serving(models[model], "bfloat16") as bench:
        assert [bench.findings() for _ in range(CLEAN_RUNS)] == [[]] * CLEAN_RUNS


def test_every_fault_is_listed_for_a_model_that_can_have_it() -> None:
    listed = {
        name.rpartition(".")[2]
        for told in LISTED.values()
        for name in (*told.must_detect, *told.invisible)
    }
    assert listed == set(FAULTS)
