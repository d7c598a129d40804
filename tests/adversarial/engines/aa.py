"""How often an engine is called faster than itself: xllamacpp on both arms, judged as any other.

    PYTHONPATH=tests python -m adversarial.engines.aa record FILE [--rounds 12]
    PYTHONPATH=tests python -m adversarial.engines.aa judge FILE [--tries 100] [--restarts N]

`record` adds rounds to FILE until there are so many; stopped, it goes on where it was. A round is
what the judge makes of one restart: both arms in a drawn order, each with newly started replicas of
xllamacpp behind the balancer, the same new prompts for both, AIPerf on every graded traffic shape
of the shipped contract. Both arms read the same file with the same options.

`judge` makes tries of as many rounds as the contract has restarts (or N), drawn from the recorded
ones, no try twice; in every round the names of the two arms are exchanged or not. Each try goes
through the gates `believability` and `objectives`, which is asked for any gain at all. "Faster" is
a pass of `objectives`: every metric won. The declared alpha is what a 95 % interval leaves out on
either side: 2.5 %. The script ends with 1 if "faster" is more frequent. How often each metric alone
was won is told too, and marked where that is above alpha, but no verdict hangs on one metric. Two
restarts are few: where starts differ more than requests do, as is so for a metric with one value a
run, one metric alone is won by chance in about one try of eight; with four restarts, in one of 60.

What it proves: whatever the runs were like, had the arms' names in each round been drawn by lot, a
try would be called faster with the share that is estimated here, on the machine, model and days of
the record. What it does not: tries share rounds, so they depend on each other, and the exact
binomial bound that is printed holds for independent ones only, of which there are no more than
rounds / restarts; it says nothing of larger models, other traffic or other machines, nor of what
differs between arms but not by name, such as the drawn order; and no response was held against the
reference, as a candidate's are.
"""

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import inferproof.demo
from inferproof.campaign.contracts import load_contract
from inferproof.core.service import Aim, EngineSpec, ServiceContract, Traffic
from inferproof.core.serving_facts import Arm, LoadFacts
from inferproof.core.values import Outcome, Value
from inferproof.gates.base import ServiceCase
from inferproof.gates.believability import Believable
from inferproof.gates.objectives import Objectives, aims_of, asked
from inferproof.gates.ratios import FIRST_TAIL, ratio_of
from inferproof.serving.engines import baseline_plan
from inferproof_remote.serving.audit import completed
from inferproof_remote.serving.balancer import find_haproxy
from inferproof_remote.serving.client import Client
from inferproof_remote.serving.deployment import Deployment
from inferproof_remote.serving.load import LoadOrder, run_load
from inferproof_remote.serving.plans import Place, parse_plan
from inferproof_remote.serving.reference import load_yardsticks
from inferproof_remote.stream import Stream
from tools.to_gguf import to_gguf

MODEL = Path(inferproof.demo.__file__).parent / "model"
CONTRACT = Path(__file__).parents[3] / "contracts" / "services" / "completions"
ENGINE = EngineSpec(engine="llama_cpp", options={"context": 4096})
LIMITS: dict[str, object] = {"memory_mib": 2048, "tmp_mib": 64, "processes": 128, "call_s": 20}
ALPHA = FIRST_TAIL
ARMS: tuple[Arm, Arm] = ("baseline", "candidate")
ALL = "all metrics"
DIGEST = "0" * 64


class AaRound(Value):
    """Both arms' load runs of one restart, as they were recorded."""

    bits: str
    loads: tuple[LoadFacts, ...]


def main() -> None:
    """Record rounds, or judge those that there are."""
    parser = argparse.ArgumentParser(prog="aa")
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--rounds", type=int, default=12)
    judging = verbs.add_parser("judge")
    judging.add_argument("file", type=Path)
    judging.add_argument("--tries", type=int, default=100)
    judging.add_argument("--restarts", type=int)
    judging.add_argument("--seed", default="aa")
    options = parser.parse_args()
    if options.verb == "record":
        record(options.file, options.rounds)
        return
    contract = load_contract(CONTRACT).service
    restarts = options.restarts or contract.restarts
    contract = contract.model_copy(update={"restarts": restarts})
    drawn = tries(read(options.file), restarts, options.tries, options.seed)
    found = count_faster(case(contract, each) for each in drawn)
    sys.exit(report(found, options.tries))


def record(file: Path, rounds: int) -> None:
    """Add recorded rounds to `file` until there are `rounds`."""
    with tempfile.TemporaryDirectory(prefix="inferproof-aa-") as name:
        work = Path(name)
        work.chmod(0o755)
        bench = Bench(work)
        for number in range(len(read(file)), rounds):
            one = bench.round(f"round-{number}")
            with file.open("a", encoding="utf-8") as lines:
                lines.write(one.model_dump_json() + "\n")
            print(f"round {number + 1} of {rounds}: {_said(one)}", flush=True)


def read(file: Path) -> list[AaRound]:
    """Return the recorded rounds; a line that was not finished is taken off the file."""
    if not file.exists():
        return []
    whole, _, cut = file.read_bytes().rpartition(b"\n")
    if cut:
        file.write_bytes(whole + b"\n" if whole else b"")
    return [AaRound.model_validate_json(line) for line in whole.splitlines()]


class Bench:
    """Starts the engine and puts it under load, as a job on a target does."""

    def __init__(self, work: Path) -> None:
        self._work, self._model = work, work / "model"
        shutil.copytree(MODEL, self._model)
        to_gguf(MODEL, self._model / "model.gguf")
        self._contract = load_contract(CONTRACT).service
        self._yardsticks = load_yardsticks(MODEL, "none", 1)

    def round(self, name: str) -> AaRound:
        """Return one restart of both arms under the same new prompts, in a drawn order."""
        bits = os.urandom(32)
        order = Stream(bits, "order 0").shuffled(ARMS)
        loads = [run for arm in order for run in self._arm(arm, bits, self._work / name / arm)]
        return AaRound(bits=bits.hex(), loads=tuple(loads))

    def _arm(self, arm: Arm, bits: bytes, work: Path) -> Iterator[LoadFacts]:
        """Yield the load runs of one start of the engine."""
        work.mkdir(parents=True)
        deployment = Deployment(
            parse_plan(baseline_plan(ENGINE).as_json()),
            arm=arm,
            place=Place(candidate=None, model=self._model, limits=LIMITS, threads=1, work=work),
            replicas=self._contract.replicas,
            haproxy=find_haproxy(),
            name=arm,
        )
        with deployment:
            if deployment.ready_s is None:
                raise SystemExit(f"the engine did not start: {deployment.log_tail()}")
            for shape in self._contract.graded:
                order = self._order(deployment, shape, bits, work)
                facts = run_load(order, self._yardsticks.vocabulary).facts
                yield LoadFacts.model_validate_json(json.dumps(facts))

    def _order(self, running: Deployment, shape: Traffic, bits: bytes, work: Path) -> LoadOrder:
        client = Client(running.endpoint).first_model()
        fidelity, rules = self._contract.fidelity, self._contract.audit.model_dump()
        return LoadOrder(
            work=work / shape.name,
            endpoint=client.endpoint,
            model_name=client.model,
            tokenizer=MODEL,
            aiperf=None,
            arm=running.arm,
            restart=0,
            shape=shape.model_dump(mode="json"),
            corpus=(CONTRACT / fidelity.corpus).read_text(encoding="utf-8"),
            bits=bits,
            on_progress=lambda done, of: None,
            given_up=lambda: bool(running.incidents()),
            completed=lambda response: completed(response, self._yardsticks, rules),
        )


def _said(one: AaRound) -> str:
    runs = (
        f"{run.arm} {run.traffic} {run.output_tokens_per_s or 0:.0f} tokens/s" for run in one.loads
    )
    return ", ".join(runs)


def tries(
    rounds: Sequence[AaRound], restarts: int, count: int, seed: str
) -> list[tuple[LoadFacts, ...]]:
    """Return the load runs of `count` different tries of `restarts` rounds each.

    A try and its mirror image, all names exchanged, are two.
    """
    possible = math.comb(len(rounds), restarts) * 2**restarts
    if possible < count:
        raise SystemExit(f"{len(rounds)} rounds make {possible} tries, not {count}; record more")
    draw = random.Random(seed)
    drawn: dict[tuple[tuple[int, ...], tuple[bool, ...]], None] = {}
    while len(drawn) < count:
        chosen = tuple(sorted(draw.sample(range(len(rounds)), restarts)))
        drawn[chosen, tuple(draw.random() < 0.5 for _ in chosen)] = None
    return [
        tuple(
            _renamed(run, restart, exchanged=exchanged)
            for restart, (number, exchanged) in enumerate(zip(chosen, exchanges, strict=True))
            for run in rounds[number].loads
        )
        for chosen, exchanges in drawn
    ]


def _renamed(run: LoadFacts, restart: int, *, exchanged: bool) -> LoadFacts:
    arm = ARMS[(run.arm == "candidate") != exchanged]
    return run.model_copy(update={"arm": arm, "restart": restart})


def case(contract: ServiceContract, loads: Sequence[LoadFacts]) -> ServiceCase:
    """Return what the gates would be given, had these runs been one job; memory was not read."""
    guards = tuple(guard for guard in contract.guards if guard.traffic is not None)
    runs = [run.model_dump(mode="json") for run in loads]
    whole = json.dumps(runs, sort_keys=True).encode()
    serve: dict[str, object] = {
        "bits": hashlib.sha256(whole).hexdigest(),
        **dict.fromkeys(("candidate_seen", "contract_seen", "model_digest"), DIGEST),
        "model_name": "tiny",
        "stages": ["fidelity", "load"],
        "separation": "container",
        "sandbox": "bubblewrap",
        "cpu_model": "",
        "cores": os.cpu_count(),
        "versions": {},
        **dict.fromkeys(("incidents", "deployments", "fidelity"), ()),
        "mutants": None,
        "loads": runs,
    }
    evidence: dict[str, object] = {
        "kind": "serve",
        "job_id": "aa",
        "status": "done",
        "purpose": "graded",
        "target": "local",
        "candidate": DIGEST,
        "contract": DIGEST,
        **dict.fromkeys(("started_at", "ended_at"), "2026-01-01T00:00:00Z"),
        "command": ["serve"],
        "remote_digest": DIGEST,
        "serve": serve,
    }
    return ServiceCase.model_validate(
        {
            "contract": contract.model_copy(update={"guards": guards}),
            "contract_digest": DIGEST,
            "candidate": DIGEST,
            "speedup_at_least": 1.0,
            "evidence": evidence,
        }
    )


def count_faster(cases: Iterator[ServiceCase]) -> Counter[str]:
    """Return how many cases are called faster, by metric and in all, and the verdicts' codes."""
    found: Counter[str] = Counter()
    for each in cases:
        for aim in aims_of(each):
            found[f"{aim.metric} on {aim.traffic}"] += _is_faster(each, aim)
        verdict = Objectives().judge(each)
        found[ALL] += verdict.outcome is Outcome.PASS
        found[f"verdict: {verdict.code.value}"] += 1
        found[f"believability: {Believable().judge(each).code.value}"] += 1
    return found


def _is_faster(one: ServiceCase, aim: Aim) -> bool:
    serve = one.evidence.serve
    assert serve
    ratio = ratio_of(serve, aim.traffic, aim.metric)
    return ratio.low >= asked(one, aim) and ratio.is_beyond_floor


def report(found: Counter[str], count: int) -> int:
    """Print every share beside alpha; return 1 if that of all metrics together is above it."""
    names = [name for name in found if ":" not in name]
    for name in names:
        mark = "ABOVE ALPHA" if found[name] > ALPHA * count else "within alpha"
        chance = at_least(found[name], count, ALPHA)
        print(
            f"{mark}: {name} faster in {found[name]} of {count} tries "
            f"(alpha {ALPHA:.1%}; chance of so many, were tries independent: {chance:.2g})"
        )
    for name in sorted(set(found) - set(names)):
        print(f"{name}: {found[name]}")
    return int(found[ALL] > ALPHA * count)


def at_least(successes: int, count: int, share: float) -> float:
    """Return the chance of `successes` or more in `count` independent tries."""
    return math.fsum(
        math.comb(count, each) * share**each * (1 - share) ** (count - each)
        for each in range(successes, count + 1)
    )


if __name__ == "__main__":
    main()
