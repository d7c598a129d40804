"""What measuring an engine costs: AIPerf through us and bare, fidelity, the audit."""

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import cast

from figures import Figures

import inferproof.demo
from inferproof.core.traffic import Traffic
from inferproof_remote.serving.audit import audit, completed, draws
from inferproof_remote.serving.client import Client
from inferproof_remote.serving.deployment import Deployment
from inferproof_remote.serving.fidelity import Question, examine, probe_engine
from inferproof_remote.serving.load import (
    LoadOrder,
    aiperf_command,
    client_environment,
    find_aiperf,
    run_load,
)
from inferproof_remote.serving.plans import Place, Plan
from inferproof_remote.serving.prompts import Rules
from inferproof_remote.serving.reference import Yardsticks, load_yardsticks
from inferproof_remote.stream import Stream

DEMO = Path(inferproof.demo.__file__).parent
ENGINE, MODEL = DEMO / "engines" / "static_cache", DEMO / "model"
CORPUS = Path(__file__).parents[2] / "contracts" / "services" / "completions" / "corpus.txt"
LIMITS: dict[str, object] = {"memory_mib": 2048, "tmp_mib": 64, "processes": 128, "call_s": 20}
REQUESTS, RATE_PER_S = 200, 3.0
LEAST_RUN_S = 60.0
TIMES_MORE, FIDELITY_S, AUDIT_S = 1.05, 20.0, 30.0
AUDIT_RULES = {"responses": 12, "tie_nats": 0.3}
SHAPE: dict[str, object] = Traffic(
    name="steady", requests=REQUESTS, rate_per_s=RATE_PER_S, isl=(48, 96), osl=(24, 40)
).model_dump(mode="json")


def main() -> None:
    """Measure all three on one running engine."""
    figures = Figures()
    print(f"load before: {os.getloadavg()[0]:.2f}; figures count below 2.5", flush=True)
    yardsticks = load_yardsticks(MODEL, "none", 1)
    rules = Rules(
        tokens=1000,
        lengths=(15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 192, 257),
        decode_tokens=40,
        batch=4,
        top_logprobs=20,
        tie_nats=0.3,
        p99_over_floor=3.0,
        max_over_floor=10.0,
        context=4096,
    )
    question = Question(rules=rules, corpus=CORPUS.read_text(encoding="utf-8"), bits=os.urandom(32))
    with tempfile.TemporaryDirectory(prefix="inferproof-bench-") as folder:
        work = Path(folder)
        work.chmod(0o755)
        with _deployed(work) as running:
            client = Client(running.endpoint).first_model()
            _fidelity(figures, client, question, yardsticks)
            _load(figures, client, question, yardsticks, work)
    figures.finish()


def _deployed(work: Path) -> Deployment:
    plan = Plan(
        engine="command",
        supervised=True,
        argv=(
            *("{python}", "{candidate}/engine.py", "--model", "{model}"),
            *("--port", "{port}", "--threads", "{threads}"),
        ),
        env={},
        health="/health",
        url=None,
        start_s=120,
        trusted=False,
    )
    place = Place(candidate=ENGINE, model=MODEL, limits=LIMITS, threads=1, work=work)
    return Deployment(plan, arm="candidate", place=place, replicas=1, haproxy=None, name="bench")


def _fidelity(figures: Figures, client: Client, question: Question, yardsticks: Yardsticks) -> None:
    features = probe_engine(client, question, yardsticks)
    found = examine(client, features, question, yardsticks)
    rows = sum(len(table.position) for table in found.tables)
    figures.at_most("fidelity, reference loaded", found.seconds, FIDELITY_S, "s", f"{rows} tokens")


def _load(
    figures: Figures, client: Client, question: Question, yardsticks: Yardsticks, work: Path
) -> None:
    order = LoadOrder(
        work=work / "ours",
        endpoint=client.endpoint,
        model_name=client.model,
        tokenizer=MODEL,
        aiperf=None,
        arm="candidate",
        restart=0,
        shape=SHAPE,
        corpus=question.corpus,
        bits=question.bits,
        on_progress=lambda done, of: None,
        given_up=lambda: False,
        completed=lambda response: completed(response, yardsticks, AUDIT_RULES),
    )
    began_s = time.monotonic()
    run = run_load(order, yardsticks.vocabulary)
    ours_s = time.monotonic() - began_s
    bare_s = _bare(order)
    is_long = bare_s >= LEAST_RUN_S
    figures.holds(f"the bare run took {bare_s:.1f} s, {LEAST_RUN_S:g} s at least", is_long)
    more = f"{ours_s:.1f} s and {bare_s:.1f} s, {run.facts['completed']} of {REQUESTS} requests"
    figures.at_most("AIPerf through us over AIPerf bare", ours_s / bare_s, TIMES_MORE, "x", more)
    began_s = time.monotonic()
    features = probe_engine(client, question, yardsticks)
    told = audit(run.responses, yardsticks, AUDIT_RULES, Stream(question.bits, "audit"))
    drawn = draws(client, features, question, yardsticks, "draws")
    tokens = len(cast("list[float]", told["tie_gap_nats"]))
    taken = len(cast("list[int]", drawn["drawn_best"]))
    figures.at_most(
        f"audit of a run of {REQUESTS} requests",
        time.monotonic() - began_s,
        AUDIT_S,
        "s",
        f"{tokens} tokens read, {taken} drawn",
    )


def _bare(order: LoadOrder) -> float:
    """Return the seconds that the same command takes on its own."""
    program = find_aiperf()
    if program is None:
        raise SystemExit("AIPerf is not installed; run: make setup")
    command = aiperf_command(order, program)
    command[command.index("--artifact-dir") + 1] = str(order.work.parent / "bare")
    began_s = time.monotonic()
    subprocess.run(
        command,
        env=client_environment(order),
        cwd=order.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - began_s


if __name__ == "__main__":
    main()
