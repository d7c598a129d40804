"""Engines that cheat are refused by the named gate for the named reason; honest ones pass."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from adversarial.engine_zoo import (
    CHEATS,
    HONEST,
    MODEL,
    TWINS,
    Cheat,
    EngineBench,
    judged,
    load_zoo,
)
from inferproof.core.values import Outcome, Reason, Verdict
from inferproof.gates import overall
from tools.to_gguf import to_gguf

ZOO = load_zoo()
SMOKE = tuple(cheat for cheat in ZOO if cheat.smoke)
TABLE = Path(__file__).parents[2] / "docs" / "cheats.md"
TRIES = 3
ELSEWHERE = ("127.0.0.1", 18123)
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineBench]:
    with socket.create_server(ELSEWHERE):  # what a proxy would reach, had it a network
        yield EngineBench(tmp_path_factory.mktemp("engines"))


def is_refused(bench: EngineBench, cheat: Cheat) -> None:
    case = bench.measure(bench.overlaid(CHEATS / cheat.folder), cheat.stages)
    verdict = overall(judged(case))[1]
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.gate == cheat.gate, verdict
    assert verdict.code in (cheat.expect, cheat.or_else), verdict


def is_accepted(bench: EngineBench, folder: Path) -> None:
    """Measure again where the client came late, as the verdict says: this machine may be busy."""
    verdicts: list[Verdict] = []
    for _ in range(TRIES):
        verdicts = judged(bench.measure(folder, ("fidelity", "load")))
        if overall(verdicts)[1].code is not Reason.CLIENT_SATURATED:
            break
    assert {each.gate for each in verdicts} >= {"serving", "fidelity", "believability", "audit"}
    assert all(each.outcome is Outcome.PASS for each in verdicts), verdicts


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cheat", SMOKE, ids=lambda cheat: cheat.folder)
def test_a_common_engine_cheat_is_refused(bench: EngineBench, cheat: Cheat) -> None:
    is_refused(bench, cheat)


@pytest.mark.timeout(300)
def test_the_honest_engine_that_they_are_made_from_is_accepted(bench: EngineBench) -> None:
    is_accepted(bench, HONEST)


@pytest.mark.zoo
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cheat", ZOO, ids=lambda cheat: cheat.folder)
def test_an_engine_cheat_is_refused_for_the_named_reason(bench: EngineBench, cheat: Cheat) -> None:
    is_refused(bench, cheat)


@pytest.mark.zoo
@pytest.mark.timeout(600)
@pytest.mark.parametrize("twin", sorted(path.name for path in TWINS.iterdir()))
def test_an_honest_engine_of_another_design_is_accepted(bench: EngineBench, twin: str) -> None:
    is_accepted(bench, bench.overlaid(TWINS / twin))


@pytest.mark.zoo
@pytest.mark.timeout(600)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_embedded_engine_is_accepted_at_either_precision(
    bench: EngineBench, dtype: str
) -> None:
    is_accepted(bench, bench.manifest(f"engine: transformers\noptions: {{dtype: {dtype}}}\n"))


@pytest.mark.zoo
@pytest.mark.timeout(600)
def test_llama_cpp_is_accepted(bench: EngineBench) -> None:
    folder = bench.manifest("engine: llama_cpp\noptions: {gguf: model.gguf, context: 4096}\n")
    to_gguf(MODEL, folder / "model.gguf")
    is_accepted(bench, folder)


def test_every_engine_folder_is_a_row() -> None:
    assert sorted(cheat.folder for cheat in ZOO) == sorted(path.name for path in CHEATS.iterdir())


def test_the_engine_zoo_is_as_large_as_promised() -> None:
    assert len(ZOO) >= 50
    assert len(list(TWINS.iterdir())) >= 9
    assert len(SMOKE) == 3


def test_the_table_of_cheats_names_every_engine_and_no_other() -> None:
    cited = set(re.findall(r"`([sp][0-9]+b?-[a-z0-9-]+)`", TABLE.read_text(encoding="utf-8")))
    assert cited == {cheat.folder for cheat in ZOO}
