"""Cases about engines: an honest measurement, and the same with something exchanged."""

import copy
import random
from datetime import UTC, datetime

from inferproof.core.service import ServiceContract
from inferproof.core.values import Verdict
from inferproof.gates.base import Gate, ServiceCase
from unit.gates.quality_facts import quality_facts

DIGEST, OTHER, BITS = "a" * 64, "b" * 64, "c" * 64
REQUESTS, TOKENS = 16, 32
NOW = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
Tree = dict[str, object]

CONTRACT = ServiceContract.model_validate(
    {
        "kind": "service",
        "name": "completions",
        "doc": "An endpoint.",
        "baseline": {"engine": "transformers"},
        "replicas": 1,
        "restarts": 2,
        "fidelity": {"corpus": "corpus.txt", "lengths": [15, 16], "mutants": ["leak_one"]},
        "practice": [
            {"name": "c4", "requests": 16, "concurrency": 4, "isl": [8, 9], "osl": [32, 32]}
        ],
        "graded": [
            {"name": "c4", "requests": 16, "concurrency": 4, "isl": [8, 9], "osl": [32, 32]}
        ],
        "objectives": [
            {"traffic": "c4", "metric": "ttft_ms"},
            {"traffic": "c4", "metric": "output_tokens_per_s"},
        ],
        "guards": [{"traffic": "c4", "metric": "ttft_ms", "percentile": 90, "worse_at_most": 1.5}],
    }
)


def audit_facts(**changes: object) -> Tree:
    """Return an honest audit of twelve responses."""
    rows = 12 * TOKENS
    drawn = random.Random("draws")
    chance = [0.5 + 0.4 * drawn.random() for _ in range(160)]
    best = [int(drawn.random() < each) for each in chance]
    return {
        "responses": 12,
        "tokens": [TOKENS] * 12,
        "tie_gap_nats": [0.0] * rows,
        "drawn_best": best,
        "drawn_best_chance": chance,
        "seconds": 1.0,
        **changes,
    }


def load_facts(arm: str, restart: int, *, speed: float = 1.0, **changes: object) -> Tree:
    """Return one honest run; `speed` divides its times."""
    drawn = random.Random(f"{arm} {restart}")
    ttft: list[object] = [100 / speed * (1 + 0.02 * drawn.random()) for _ in range(REQUESTS)]
    return {
        "arm": arm,
        "restart": restart,
        "traffic": "c4",
        "seed": 1,
        "command": ["aiperf"],
        "client_version": "aiperf 0.13.0",
        "exit_code": 0,
        "is_complete": True,
        "was_cancelled": False,
        "asked": REQUESTS,
        "completed": REQUESTS,
        "errors": {},
        "seconds": 4.0 / speed,
        "ttft_ms": ttft,
        "tpot_ms": [10 / speed] * REQUESTS,
        "latency_ms": [410 / speed] * REQUESTS,
        "isl": [8] * REQUESTS,
        "osl_asked": [TOKENS] * REQUESTS,
        "osl": [TOKENS] * REQUESTS,
        "told": [0] * REQUESTS,
        "chunks": [TOKENS] * REQUESTS,
        "arrivals": [TOKENS] * REQUESTS,
        "whole": [1] * REQUESTS,
        "finish_reasons": {"length": REQUESTS},
        "distinct_responses": REQUESTS,
        "compressed_share": 0.4,
        "client_lag_p99_ms": 1.0,
        "output_tokens_per_s": 128.0 * speed * (1 + 0.01 * drawn.random()),
        "requests_per_s": 4.0 * speed,
        "audit": audit_facts(),
        **changes,
    }


def start_facts(arm: str, restart: int, **changes: object) -> Tree:
    """Return one start of one replica that served."""
    return {
        "arm": arm,
        "restart": restart,
        "engine": "command",
        "supervised": True,
        "replicas": 1,
        "healthy": 1,
        "ready_s": 2.0,
        "features": {"stream": True},
        "incidents": [],
        "log_tail": "",
        "cores_each": 1,
        "busiest_cores": 0.9,
        **changes,
    }


def case(
    loads: list[Tree] | None = None,
    *,
    starts: list[Tree] | None = None,
    purpose: str = "practice",
    asked: float = 1.2,
) -> ServiceCase:
    """Return a case with these runs and starts; without any, two honest rounds, twice as fast."""
    rounds = [
        load_facts(arm, restart, speed=2.0 if arm == "candidate" else 1.0)
        for restart in range(2)
        for arm in ("candidate", "baseline")
    ]
    served = [start_facts(arm, n) for n in range(2) for arm in ("candidate", "baseline")]
    serve: Tree = {
        "bits": BITS,
        "candidate_seen": DIGEST,
        "contract_seen": OTHER,
        "model_name": "tiny",
        "model_digest": DIGEST,
        "stages": ["fidelity", "load"],
        "separation": "container",
        "sandbox": "bubblewrap",
        "cpu_model": "cpu",
        "cores": 2,
        "versions": {},
        "incidents": [],
        "deployments": served if starts is None else starts,
        "fidelity": [],
        "mutants": None,
        "quality": quality_facts(),
        "loads": rounds if loads is None else loads,
    }
    return ServiceCase.model_validate(
        {
            "contract": CONTRACT,
            "contract_digest": OTHER,
            "candidate": DIGEST,
            "speedup_at_least": asked,
            "evidence": {
                "kind": "serve",
                "job_id": "job",
                "status": "done",
                "purpose": purpose,
                "target": "local",
                "candidate": DIGEST,
                "contract": OTHER,
                "started_at": NOW,
                "ended_at": NOW,
                "command": ["serve"],
                "remote_digest": DIGEST,
                "serve": copy.deepcopy(serve),
            },
        }
    )


def with_run(**changes: object) -> ServiceCase:
    """Return an honest case whose candidate's first run has some facts exchanged."""
    baseline = [load_facts("baseline", restart) for restart in range(2)]
    honest = load_facts("candidate", 1, speed=2.0)
    return case([load_facts("candidate", 0, speed=2.0, **changes), honest, *baseline])


def said(gate: Gate[ServiceCase], about: ServiceCase) -> tuple[str, str]:
    """Return a gate's outcome and code."""
    verdict: Verdict = gate.judge(about)
    return verdict.outcome.value, verdict.code.value
