import asyncio
import os
import time
from pathlib import Path

import pytest
import yaml

from inferproof.backends import torch_profile
from inferproof.backends.base import Against, Work
from inferproof.core.campaign import Limits
from inferproof.core.candidate import Candidate, Manifest
from inferproof.core.canonical import digest_bytes
from inferproof.core.contract import KernelContract
from inferproof.core.evidence import ProfileFacts
from inferproof.core.sealed import SealedContract
from inferproof.core.values import JobStatus
from inferproof.hosts.base import follow
from inferproof.hosts.local import Local
from inferproof_remote.cuda_driver import find_attributes

pytestmark = pytest.mark.integration
CONTRACT = Path(__file__).parents[2] / "contracts" / "kernels" / "rms_norm" / "contract.yaml"
PYTHON = """\
import torch

def f(x, weight, y, *, eps):
    rows = x.float()
    y.copy_(rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + eps) * weight.float())
"""
PREPARED = """\
def p(weight, *, eps):
    return weight.float() * 1.0

def f(x, weight, y, *, eps, prepared):
    y.copy_(x.float() * prepared)
"""
CPP = """\
#include <cstdint>
typedef uint16_t bf16;
extern "C" void f(const bf16* x, const bf16* w, bf16* y, int64_t tokens, int64_t hidden, float e) {
    for (int64_t i = 0; i < tokens * hidden; i++) y[i] = x[i] + w[i % hidden] + (e > 0);
}
"""


def profiled(tmp_path: Path, language: str, text: str, **manifest: object) -> ProfileFacts:
    source = {"python": "k.py", "cpp": "k.cpp", "cuda": "k.cu", "triton": "k.py"}[language]
    fields = {"contract": "rms_norm", "language": language, "source": source, "entry": "f"}
    contract = KernelContract.model_validate(yaml.safe_load(CONTRACT.read_text()))
    sealed = SealedContract(contract=contract, digest="0" * 64, folder="c", files={})
    work = Work(
        job_id=f"p-{os.getpid()}-{time.monotonic_ns()}",
        wall_s=60,
        candidate=Candidate(
            digest="1" * 64,
            manifest=Manifest.model_validate(fields | manifest),
            files={source: digest_bytes(text.encode())},
        ),
        contents={source: text.encode()},
        limits=Limits(),
    )
    against = Against(
        sealed=sealed, contents={}, dims_fixed={"hidden": 256}, dims_max={"tokens": 16384}
    )
    order = torch_profile.ProfileOrder(threads=1, calls=5, dims={"tokens": 128})

    async def scenario() -> ProfileFacts:
        host = Local(tmp_path)
        await host.start(torch_profile.request(work, against, order))
        states = [state async for state in follow(host, work.job_id, wait_s=60)]
        assert states[-1].status is JobStatus.DONE, states[-1].failure
        folder = await host.result_dir(work.job_id)
        return torch_profile.parse((folder / "result.json").read_bytes())

    return asyncio.run(scenario())


def test_a_python_candidate_shows_its_operators(tmp_path: Path):
    facts = profiled(tmp_path, "python", PYTHON)
    names = [spot.name for spot in facts.hot_spots]
    assert facts.incidents == ()
    assert facts.dims == {"tokens": 128, "hidden": 256}
    assert {"aten::mul", "aten::mean"} <= set(names)
    assert sum(spot.share for spot in facts.hot_spots) <= 1.0001
    assert facts.seconds_per_call is not None
    assert facts.seconds_per_call > 0
    assert facts.bytes_per_s == pytest.approx(
        2 * (2 * 128 * 256 + 256) / facts.seconds_per_call, rel=1e-9
    )
    assert facts.bottleneck.split(":")[0] in ("memory", "compute", "overhead")


def test_a_prepared_candidate_is_given_what_it_prepared(tmp_path: Path):
    facts = profiled(tmp_path, "python", PREPARED, prepare="p")
    assert facts.incidents == ()
    assert facts.hot_spots


def test_a_cpp_candidate_is_one_hot_spot_and_says_so(tmp_path: Path):
    facts = profiled(tmp_path, "cpp", CPP)
    assert [spot.name for spot in facts.hot_spots] == ["f"]
    assert facts.hot_spots[0].share == 1.0
    assert "one hot spot" in facts.bottleneck


@pytest.mark.parametrize(
    ("language", "text", "code"),
    [
        ("python", "def f(x, weight, y, *, eps): raise ValueError('no')\n", "crashed"),
        ("cpp", 'extern "C" void f() { nope; }\n', "compile_failed"),
    ],
)
def test_what_cannot_be_profiled_says_why(tmp_path: Path, language: str, text: str, code: str):
    facts = profiled(tmp_path, language, text)
    assert [incident.code for incident in facts.incidents] == [code]
    assert facts.bottleneck.startswith(f"not measured: {code}: ")
    assert facts.hot_spots == ()


@pytest.mark.skipif(find_attributes() is not None, reason="there is an NVIDIA GPU here")
@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_a_profile_of_device_code_says_that_it_needs_a_gpu(tmp_path: Path, language: str):
    launch = {"kernel": "f", "grid": ["tokens"], "block": [128]}
    facts = profiled(tmp_path, language, "\n", launches=[launch])
    (incident,) = facts.incidents
    assert incident.code == "infrastructure"
    assert f"a {language} candidate needs an NVIDIA GPU" in incident.detail
    assert "compile_kernel works without one" in incident.detail
    assert facts.device is None
    assert facts.seconds_per_call is None
