import json
import sys
from pathlib import Path
from typing import get_args

import pytest

from inferproof.core.candidate import EngineManifest
from inferproof.core.errors import UsageError
from inferproof.core.service import EngineSpec
from inferproof.serving.engines import ENGINES, Plan, baseline_plan, candidate_plan
from inferproof_remote.job import JobFormatError
from inferproof_remote.serving.plans import Place, filled, parse_plan, placeholders

PLACE = Place(
    candidate=Path("/job/in/candidate"),
    model=Path("/models/tiny"),
    limits={"memory_mib": 1},
    threads=3,
    work=Path("/job/work"),
)


def plan(wished: EngineManifest | EngineSpec) -> Plan:
    if isinstance(wished, EngineManifest):
        return candidate_plan(wished)
    return baseline_plan(wished)


def wish(engine: str, **rest: object) -> EngineManifest:
    return EngineManifest.model_validate({"contract": "chat", "engine": engine, **rest})


def spec(engine: str, **options: object) -> EngineSpec:
    return EngineSpec.model_validate({"engine": engine, "options": options})


def command_line(wished: EngineManifest | EngineSpec) -> str:
    values = placeholders(PLACE, port=8000, pyz=Path("/b.pyz"))
    return " ".join(filled(part, values) for part in plan(wished).argv[1:])


def test_every_engine_of_a_manifest_and_of_a_contract_has_an_adapter():
    names = sorted(engine.name for engine in ENGINES)
    for model in (EngineManifest, EngineSpec):
        assert sorted(get_args(model.model_fields["engine"].annotation)) == names


@pytest.mark.parametrize(
    "wished",
    [
        wish("command", start=["python", "serve.py", "{port}"], health="/up", start_s=7),
        wish("transformers", options={"dtype": "bfloat16"}),
        wish("llama_cpp"),
        wish("endpoint", url="http://127.0.0.1:9/v"),
    ],
    ids=lambda wished: wished.engine,
)
def test_the_bench_reads_every_plan_as_it_was_made(wished: EngineManifest):
    made = plan(wished)
    read = parse_plan(json.loads(json.dumps(made.as_json())))
    assert {name: getattr(read, name) for name in type(made).model_fields} == {
        **dict(made),
        "argv": tuple(made.argv),
    }


def test_a_command_is_the_manifests_own():
    made = plan(wish("command", start=["sh", "run.sh", "{port}"], health="/up", start_s=7))
    assert (made.argv, made.health, made.start_s) == (("sh", "run.sh", "{port}"), "/up", 7.0)
    assert made.supervised
    assert not made.trusted


def test_a_baselines_command_is_split_as_a_shell_would():
    made = plan(spec("command", start="vllm serve '{model}' --port {port}", start_s=600))
    assert made.argv == ("vllm", "serve", "{model}", "--port", "{port}")
    assert made.start_s == 600.0


def test_only_our_own_code_is_trusted_with_the_benchs_code():
    trusted = {engine.name for engine in ENGINES if plan_of(engine.name).trusted}
    assert trusted == {"transformers", "llama_cpp"}


def plan_of(name: str):
    needs: dict[str, dict[str, object]] = {
        "command": {"start": "serve"},
        "endpoint": {"url": "http://127.0.0.1:1"},
    }
    return plan(spec(name, **needs.get(name, {})))


def test_an_endpoint_is_never_supervised():
    made = plan_of("endpoint")
    assert not made.supervised
    assert made.argv == ()


def test_placeholders_are_filled_and_other_braces_stay():
    line = command_line(
        wish("command", start=["x", "{port}", '{"a": {port}}', "{model}", "{other}"])
    )
    assert line == '8000 {"a": 8000} /models/tiny {other}'


def test_a_gguf_lies_in_the_candidate_or_in_a_baselines_model():
    assert "--gguf /job/in/candidate/a/w.gguf" in command_line(
        wish("llama_cpp", options={"gguf": "a/w.gguf"})
    )
    assert "--gguf" not in command_line(wish("llama_cpp"))


@pytest.mark.parametrize("path", ["/etc/passwd", "../w.gguf", "a/../../w.gguf"])
def test_a_gguf_outside_the_folder_is_refused(path: str):
    with pytest.raises(UsageError, match="no path inside a folder"):
        plan(wish("llama_cpp", options={"gguf": path}))


@pytest.mark.parametrize(
    ("wished", "said"),
    [
        (wish("transformers", options={"dtyp": "float32"}), "no option 'dtyp'"),
        (wish("transformers", options={"dtype": "int4"}), "'int4'"),
        (wish("transformers", options={"max_batch": "8"}), "'8'"),
        (wish("command", start=["x"], options={"start": "y"}), "no option 'start'"),
        (spec("command"), "no start"),
        (spec("command", start="a 'b"), "No closing quotation"),
        (spec("endpoint"), "no address"),
        (spec("command", start="x", health="/a\n b"), "no path"),
        (spec("endpoint", url="http://x", health="health"), "no path"),
        (spec("endpoint", url="file:///etc/passwd"), "no address"),
    ],
)
def test_an_option_that_no_engine_has_is_an_error(wished: EngineManifest | EngineSpec, said: str):
    with pytest.raises(UsageError, match=said):
        plan(wished)


@pytest.mark.parametrize(
    "change",
    [{"argv": "serve"}, {"argv": [1]}, {"start_s": "soon"}, {"odd": 1}, {"env": []}, {"url": 3}],
)
def test_the_bench_reads_no_plan_of_another_form(change: dict[str, object]):
    whole = {**plan(wish("command", start=["x"])).as_json(), **change}
    with pytest.raises(JobFormatError):
        parse_plan(whole)


def test_a_plan_without_a_key_is_no_plan():
    whole = plan(wish("command", start=["x"])).as_json()
    del whole["trusted"]
    with pytest.raises(JobFormatError, match="trusted"):
        parse_plan(whole)


def test_vllm_runs_by_the_python_of_its_own_environment_and_tells_its_tokens():
    made = plan(spec("vllm", max_seqs=32, eager=True, prefix_caching=False, kv_cache_gib=2))
    assert made.argv[:3] == ("{python:vllm}", "-m", "vllm.entrypoints.openai.api_server")
    line = " ".join(made.argv)
    for words in (
        "--model {model}",
        "--port {port}",
        "--max-num-seqs 32",
        "--return-tokens-as-token-ids",
        "--enforce-eager",
        "--no-enable-prefix-caching",
        "--enable-chunked-prefill",
    ):
        assert words in line
    assert made.env["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert made.supervised
    assert not made.trusted


def test_what_is_left_to_vllm_is_not_given():
    line = " ".join(plan(spec("vllm")).argv)
    for flag in ("--block-size", "--max-num-batched-tokens", "--gpu-memory-utilization"):
        assert flag not in line


def test_sglang_turns_options_into_its_flags():
    made = plan(spec("sglang", chunked_prefill=-1, graphs=False, attention="triton", memory=0.85))
    line = " ".join(made.argv)
    for words in (
        "{python:sglang} -m sglang.launch_server --model-path {model}",
        "--chunked-prefill-size -1",
        "--disable-cuda-graph",
        "--attention-backend triton",
        "--mem-fraction-static 0.85",
    ):
        assert words in line
    assert "--disable-radix-cache" not in line
    assert "--max-running-requests" not in line


def test_an_engine_without_an_environment_of_its_own_runs_by_the_benchs_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    values = placeholders(PLACE, port=1, pyz=Path("/b.pyz"))
    assert filled("{python:vllm}", values) == sys.executable
    own = tmp_path / "vllm/bin/python"
    own.parent.mkdir(parents=True)
    own.touch()
    values = placeholders(PLACE, port=1, pyz=Path("/b.pyz"))
    assert filled("{python:vllm}", values) == str(own)


def test_llama_cpps_own_threads_come_after_the_targets():
    line = command_line(spec("llama_cpp", threads=2, flash_attention="on", cache_type="q8_0"))
    assert line.index("--threads 3") < line.index("--threads 2")
    assert "--flash-attention on" in line
    assert "--cache-type q8_0" in line


@pytest.mark.parametrize(
    ("engine", "options"),
    [("vllm", {"dtype": "int3"}), ("sglang", {"schedule": "best"}), ("vllm", {"batch": 1})],
)
def test_an_option_that_no_engine_has_is_refused_with_those_that_it_has(
    engine: str, options: dict[str, object]
):
    with pytest.raises(UsageError) as refused:
        plan(spec(engine, **options))
    assert refused.value.hint
