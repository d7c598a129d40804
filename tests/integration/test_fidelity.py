"""Engines over HTTP and mutants in this process, held against the tiny model's reference."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest
import torch

from inferproof.campaign.contracts import load_contract
from inferproof.core.serving_facts import TokenScores
from inferproof.core.values import Reason
from inferproof.gates.fidelity import Finding, find_faults
from inferproof_remote.serving.client import Client, Engine
from inferproof_remote.serving.faults import FAULTS, HONEST
from inferproof_remote.serving.features import Features
from inferproof_remote.serving.fidelity import Question, examine, probe_engine
from inferproof_remote.serving.mutants import InProcess, named_fault
from inferproof_remote.serving.plain_model import Cache, PlainEngine, PlainModel
from inferproof_remote.serving.prompts import Rules
from inferproof_remote.serving.reference import (
    Reference,
    Yardsticks,
    context_tokens,
    load_yardsticks,
)
from inferproof_remote.serving.scoring import divergence, top

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "mcp_server/inferproof/demo/model"
SERVICE = ROOT / "contracts/services/completions"
FIDELITY = load_contract(SERVICE).service.fidelity
FAULTY_ENGINE = ROOT / "tests/adversarial/engines/faulty_engine.py"
ALL = Features(id_prompts=True, prompt_logprobs=True, logprobs=True, token_ids=True, listed=20)
CLEAN_RUNS = 20
FEW = 200
# The fault, and where it must be named. Windows of the corpus may begin alike by chance, and a
# later one is then reuse too; so a fault of reuse may show elsewhere as well.
REFUSED = {
    "no_qk_norm": "prompt",
    "gqa_modulo": "prompt",
    "leak_one": "prompt",
    "gelu_for_silu": "prompt",
    "rope_theta": "prompt",
    "rope_pairs": "prompt",
    "cut_128": "prompt",
    "kv_slot_each_block": "prompt",
    "kv_block_of_another": "prompt",
    "first_token_unseen": "prompt",
    "layer_skipped": "prompt",
    "logits_scaled": "prompt",
    "decode_plus_one": "decode",
    "decode.second_best": "decode",
    "decode.kv_slot_each_block": "decode",
    "batch.kv_slot_each_block": "batch",
    "reuse.kv_slot_each_block": "reuse",
}
# One of each kind; live servers show all of them in the zoo.
QUICK = (
    "leak_one",
    "cut_128",
    "rope_theta",
    "decode.second_best",
    "batch.kv_slot_each_block",
    "reuse.kv_slot_each_block",
)


@pytest.fixture(scope="module")
def yardsticks() -> Yardsticks:
    return load_yardsticks(MODEL, "none", 1)


@pytest.fixture(scope="module")
def model() -> PlainModel:
    return PlainModel(MODEL)


def question(tokens: int = FIDELITY.tokens) -> Question:
    """Return what the shipped contract asks, with bits that nobody knew before."""
    rules = Rules(
        tokens=tokens,
        lengths=FIDELITY.lengths,
        decode_tokens=FIDELITY.decode_tokens,
        batch=FIDELITY.batch,
        top_logprobs=FIDELITY.top_logprobs,
        tie_nats=FIDELITY.tie_nats,
        p99_over_floor=FIDELITY.p99_over_floor,
        max_over_floor=FIDELITY.max_over_floor,
        context=context_tokens(MODEL),
    )
    corpus = (SERVICE / FIDELITY.corpus).read_text(encoding="utf-8")
    return Question(rules=rules, corpus=corpus, bits=os.urandom(32))


def findings(
    engine: Engine, features: Features, yardsticks: Yardsticks, tokens: int = FIDELITY.tokens
) -> list[Finding]:
    """Return what the gate has to say against `engine` on so many tokens or more."""
    scores = examine(engine, features, question(tokens), yardsticks).scores()
    rules = FIDELITY.model_copy(update={"tokens": tokens})
    return find_faults([TokenScores.model_validate(each) for each in scores], rules)


@contextmanager
def served(*options: str) -> Generator[Client]:
    """Yield a client of a faulty engine in a process of its own."""
    command = [sys.executable, str(FAULTY_ENGINE), "--model", str(MODEL), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            port = process.stdout.readline().split()[1]
            yield Client(f"http://127.0.0.1:{port}").first_model()
        finally:
            process.kill()


def test_the_plain_model_computes_what_transformers_does(
    model: PlainModel, yardsticks: Yardsticks
) -> None:
    ids = yardsticks.vocabulary.encode(question().corpus)[:200]
    truth, cache = yardsticks.truth.logprobs(ids), Cache()
    whole = model.logprobs(ids, Cache(), HONEST)
    model.logprobs(ids[:100], cache, HONEST)
    steps = torch.cat([model.logprobs([each], cache, HONEST) for each in ids[100:]])
    assert float((whole - truth).abs().max()) < 1e-4
    assert float((steps - truth[100:]).abs().max()) < 1e-4


def test_a_second_look_rounds_otherwise_each_time_and_leaves_the_reference_as_it_was(
    yardsticks: Yardsticks,
) -> None:
    ids = yardsticks.vocabulary.encode(question().corpus)[:40]
    truth, trusted = yardsticks.truth.logprobs(ids)[-1], Reference(MODEL, "bfloat16")
    readings = list(trusted.shaken(ids))
    off = [divergence(truth, top(each, 20)) for each in readings]
    assert len(set(off)) == len(readings)
    assert 0 < median(off) < 0.1
    assert torch.equal(trusted.logprobs(ids), Reference(MODEL, "bfloat16").logprobs(ids))


@pytest.mark.parametrize(
    "name",
    [each if each in QUICK else pytest.param(each, marks=pytest.mark.zoo) for each in REFUSED],
)
def test_a_known_fault_is_refused_on_its_path(
    name: str, model: PlainModel, yardsticks: Yardsticks
) -> None:
    engine = InProcess(PlainEngine(model, *named_fault(name)), yardsticks.vocabulary)
    tokens = FEW if REFUSED[name] == "prompt" else FIDELITY.tokens
    found = findings(engine, ALL, yardsticks, tokens)
    named = {each.where.split(",")[0].split()[1] for each in found}
    assert REFUSED[name] in named
    assert REFUSED[name] in ("prompt", "reuse") or "prompt" not in named
    assert {each.code for each in found} <= {
        Reason.UNFAITHFUL,
        Reason.WRONG_TOKENS,
        Reason.LEAKS,
    }
    assert (found[0].code is Reason.LEAKS) == (name == "leak_one")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_honest_engine_passes(dtype: torch.dtype, yardsticks: Yardsticks) -> None:
    engine = InProcess(PlainEngine(PlainModel(MODEL, dtype)), yardsticks.vocabulary)
    assert findings(engine, ALL, yardsticks) == []


def test_a_second_engine_on_the_same_prompts_costs_only_its_own_texts(
    model: PlainModel,
) -> None:
    asked, fresh = question(FEW), load_yardsticks(MODEL, "none", 1)
    costs: list[int] = []
    for switches in (HONEST, HONEST, FAULTS["second_best"]):
        engine = InProcess(PlainEngine(model, switches), fresh.vocabulary)
        before = fresh.truth.forwards
        examine(engine, ALL, asked, fresh)
        costs.append(fresh.truth.forwards - before)
    first, same, other = costs
    assert same == 0
    assert 0 < other < 0.8 * first


def test_a_matched_reference_sees_how_an_engine_computes_and_not_its_precision() -> None:
    matched, quantised = load_yardsticks(MODEL, "nvfp4", 1), PlainModel(MODEL, way="nvfp4")
    for name, engine in {
        "honest": PlainEngine(quantised),
        "undeclared": PlainEngine(PlainModel(MODEL)),
        "faulty": PlainEngine(quantised, FAULTS["rope_theta"]),
    }.items():
        found = findings(InProcess(engine, matched.vocabulary), ALL, matched, FEW)
        assert bool(found) == (name != "honest"), name


@pytest.mark.zoo
@pytest.mark.timeout(600)
def test_twenty_clean_runs_raise_no_alarm(yardsticks: Yardsticks) -> None:
    engine = InProcess(PlainEngine(PlainModel(MODEL, torch.bfloat16)), yardsticks.vocabulary)
    assert [findings(engine, ALL, yardsticks) for _ in range(CLEAN_RUNS)] == [[]] * CLEAN_RUNS


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=pytest.mark.zoo)])
def test_an_engine_is_probed_by_content_and_passes_over_http(
    yardsticks: Yardsticks, dtype: str
) -> None:
    with served("--dtype", dtype) as client:
        features = probe_engine(client, question(), yardsticks)
        assert features.as_facts() == {
            "prompt_logprobs": True,
            "logprobs": True,
            "token_ids": True,
            "id_prompts": True,
            "stream": False,
            "ignore_eos": True,
        }
        assert findings(client, features, yardsticks) == []


def test_a_fault_of_decoding_alone_is_refused_over_http(yardsticks: Yardsticks) -> None:
    with served("--fault", "kv_slot_each_block", "--when", "decode") as client:
        features = probe_engine(client, question(), yardsticks)
        assert findings(client, features, yardsticks)[0].where.startswith("path decode")


def test_a_fault_of_batches_alone_is_refused_over_http(yardsticks: Yardsticks) -> None:
    with served("--fault", "kv_slot_each_block", "--when", "batch") as client:
        features = probe_engine(client, question(), yardsticks)
        assert findings(client, features, yardsticks)[0].where.startswith("path batch")


HIDDEN = ("prompt_logprobs", "logprobs", "token_ids", "id_prompts")


TEXTS = {"shows special tokens": HIDDEN, "hides special tokens": (*HIDDEN, "special_tokens")}


@pytest.mark.parametrize("text", TEXTS)
def test_an_engine_without_logprobs_is_judged_by_its_tokens(
    text: str, yardsticks: Yardsticks
) -> None:
    hidden = TEXTS[text]
    with served("--hide", *hidden) as client:
        features = probe_engine(client, question(), yardsticks)
        assert not features.logprobs
        assert not features.prompt_scores
        assert not features.id_prompts
        assert findings(client, features, yardsticks, FEW) == []
    with served("--hide", *hidden, "--fault", "rope_theta") as client:
        found = findings(client, features, yardsticks, FEW)
        assert found[0].code is Reason.WRONG_TOKENS


@pytest.mark.zoo
@pytest.mark.timeout(600)
@pytest.mark.parametrize("text", TEXTS)
def test_twenty_clean_runs_of_text_alone_raise_no_alarm(text: str, yardsticks: Yardsticks) -> None:
    with served("--hide", *TEXTS[text], "--dtype", "bfloat16") as client:
        found = [findings(client, Features(), yardsticks, FEW) for _ in range(CLEAN_RUNS)]
    assert found == [[]] * CLEAN_RUNS


def test_answers_that_lack_what_the_probe_saw_are_refused(yardsticks: Yardsticks) -> None:
    with served("--hide", "logprobs") as client:
        assert findings(client, ALL, yardsticks)[0].code is Reason.REQUESTS_FAILED
