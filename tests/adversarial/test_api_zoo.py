"""Servers that speak the API wrong are refused by the check that they break; honest ones pass."""

import os
import re
import sys
from pathlib import Path

import pytest

from adversarial.api_zoo import FOLDERS, HONEST, MODEL, TWINS, ApiBench, WrongServer, load_rows
from inferproof.core.values import Outcome, Verdict
from inferproof.gates.conformance import Conforms
from inferproof.gates.tasks import TasksDone
from tools.to_gguf import to_gguf

ROWS = load_rows()
TABLE = Path(__file__).parents[2] / "docs" / "cheats.md"
REMOTE = "from inferproof_remote.serving import {0}; import sys; sys.exit({0}.main(sys.argv[1:]))"
STATIC = [sys.executable, str(HONEST / "engine.py")]
OWN = [sys.executable, "-c", REMOTE.format("engine_transformers")]
LLAMA = [sys.executable, "-c", REMOTE.format("engine_llama"), "--context", "4096"]
WITHOUT_BIAS = """
import server
from model import Model

def parse(body, tokenizer):
    if body.get("logit_bias"):
        raise ValueError("logit_bias is not supported")
    return honest(body, tokenizer)

honest, server.parse = server.parse, parse
server.main(Model)
"""
pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> ApiBench:
    return ApiBench(tmp_path_factory.mktemp("servers"))


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    to_gguf(MODEL, path)
    return path


def verdict_of(bench: ApiBench, command: list[str], gate: str) -> Verdict:
    bits = os.urandom(32)
    with bench.serving(command) as client:
        if gate == "conformance":
            return Conforms().judge(bench.conformance(client, bits))
        answers = bench.answers(client, bits, "candidate")
    with bench.serving(STATIC) as client:
        baseline = bench.answers(client, bits, "baseline")
    return TasksDone().judge(bench.tasks(answers, baseline))


def is_refused(bench: ApiBench, row: WrongServer) -> None:
    verdict = verdict_of(bench, bench.overlaid(FOLDERS / row.folder), row.gate)
    assert verdict.outcome is Outcome.FAIL, verdict
    assert re.search(rf"\b{row.names}\b", verdict.reason), verdict


def test_the_demos_engine_conforms_and_answers_tasks_as_itself(bench: ApiBench) -> None:
    bits = os.urandom(32)
    with bench.serving(STATIC) as client:
        verdicts = [Conforms().judge(bench.conformance(client, bits))]
        answers = [bench.answers(client, bits, arm) for arm in ("candidate", "baseline")]
    verdicts.append(TasksDone().judge(bench.tasks(*answers)))
    assert [each.outcome for each in verdicts] == [Outcome.PASS, Outcome.PASS], verdicts
    results = answers[0]["results"]
    assert isinstance(results, list)
    assert {"right", "wrong"} == {*results}  # the tiny model can do some of them, not all


@pytest.mark.zoo
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.folder)
def test_a_wrong_server_is_refused_by_the_check_it_breaks(
    bench: ApiBench, row: WrongServer
) -> None:
    is_refused(bench, row)


@pytest.mark.zoo
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("gate", ["conformance", "tasks"])
def test_the_embedded_engine_passes_at_either_precision(
    bench: ApiBench, dtype: str, gate: str
) -> None:
    verdict = verdict_of(bench, [*OWN, "--dtype", dtype], gate)
    assert verdict.outcome is Outcome.PASS, verdict


@pytest.mark.zoo
@pytest.mark.parametrize("gate", ["conformance", "tasks"])
def test_llama_cpp_passes(bench: ApiBench, gguf: Path, gate: str) -> None:
    verdict = verdict_of(bench, [*LLAMA, "--gguf", str(gguf)], gate)
    assert verdict.outcome is Outcome.PASS, verdict


@pytest.mark.zoo
@pytest.mark.parametrize("twin", ["by-the-book", "tokens-only", "text-under-load", "prefix-cache"])
def test_an_honest_engine_of_another_design_conforms(bench: ApiBench, twin: str) -> None:
    verdict = verdict_of(bench, bench.overlaid(TWINS / twin), "conformance")
    assert verdict.outcome is Outcome.PASS, verdict


@pytest.mark.zoo
def test_without_logit_bias_this_small_model_shows_no_split_character_and_that_is_said(
    bench: ApiBench, tmp_path: Path
) -> None:
    (tmp_path / "engine.py").write_text(WITHOUT_BIAS, encoding="utf-8")
    verdict = verdict_of(bench, bench.overlaid(tmp_path), "conformance")
    assert verdict.outcome is Outcome.INCONCLUSIVE, verdict
    assert "unicode of completions, not seen" in verdict.reason


def test_every_wrong_server_is_a_row_and_in_the_table() -> None:
    folders = sorted(path.name for path in FOLDERS.iterdir())
    assert sorted(row.folder for row in ROWS) == folders
    cited = set(re.findall(r"`(api-[a-z0-9-]+)`", TABLE.read_text(encoding="utf-8")))
    assert cited == set(folders)
