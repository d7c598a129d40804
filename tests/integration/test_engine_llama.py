"""llama.cpp's server in a sandbox behind the balancer agrees with the model in transformers."""

import http.client
import json
import shutil
from pathlib import Path
from typing import cast

import pytest
import torch
from transformers import AutoModelForCausalLM

import inferproof.demo
from inferproof.core.candidate import EngineManifest
from inferproof.serving.engines import candidate_plan
from inferproof_remote.serving.balancer import find_haproxy
from inferproof_remote.serving.deployment import Deployment
from inferproof_remote.serving.plans import Place, parse_plan
from tools.to_gguf import to_gguf

pytestmark = pytest.mark.integration
MODEL = Path(inferproof.demo.__file__).parent / "model"
LIMITS: dict[str, object] = {"memory_mib": 1024, "tmp_mib": 16, "processes": 64, "call_s": 10}
PROMPT = [5 + (7 * k) % 1500 for k in range(40)]


def deployed(work: Path, candidate: Path, **options: object) -> Deployment:
    manifest = EngineManifest.model_validate(
        {"contract": "completions", "engine": "llama_cpp", "options": options, "start_s": 60}
    )
    return Deployment(
        parse_plan(candidate_plan(manifest).as_json()),
        arm="candidate",
        place=Place(candidate=candidate, model=MODEL, limits=LIMITS, threads=1, work=work),
        replicas=1,
        haproxy=find_haproxy(),
        name="llama",
    )


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    folder = tmp_path / "candidate"
    folder.mkdir()
    return folder


def test_it_serves_the_candidates_gguf_as_the_model_computes(tmp_path: Path, candidate: Path):
    to_gguf(MODEL, candidate / "model.gguf")
    body = {
        "prompt": PROMPT,
        "max_tokens": 12,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 1,
    }
    with deployed(tmp_path, candidate, gguf="model.gguf", context=2048) as running:
        assert running.ready_s is not None, running.log_tail()
        connection = http.client.HTTPConnection(running.endpoint.removeprefix("http://"))
        connection.request("POST", "/v1/completions", json.dumps(body))
        told = json.loads(connection.getresponse().read())
        connection.close()
        assert running.incidents() == []
    rows = told["choices"][0]["logprobs"]["content"]
    ids = [row["id"] for row in rows]
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)  # pyright: ignore[reportUnknownMemberType]
    with torch.inference_mode():
        logits = cast("torch.Tensor", model(input_ids=torch.tensor([PROMPT + ids])).logits)
    expected = logits[0, len(PROMPT) - 1 : -1].log_softmax(-1)
    assert len(ids) == 12
    for row, reference in zip(rows, expected, strict=True):
        assert abs(row["logprob"] - float(reference[row["id"]])) < 0.02


def test_without_a_gguf_it_says_what_is_missing(tmp_path: Path, candidate: Path):
    with deployed(tmp_path, candidate) as running:
        assert running.ready_s is None
        (incident,) = running.incidents()
        assert "does not hold exactly one .gguf file" in incident.detail
    shutil.rmtree(candidate)
