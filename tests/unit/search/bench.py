"""A bench that needs no machine: a search job's evidence, made as a landscape says."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import cast

from inferproof.core.canonical import digest_json
from inferproof.core.evidence import Evidence
from inferproof.core.reports import JobReport, Started
from inferproof.core.sealed import SealedContract
from inferproof.core.service import ServiceContract
from inferproof.core.space import Setting
from inferproof.core.values import JobStatus, Purpose
from inferproof.orders import Round
from inferproof.search.arm import Court, SearchArm
from unit.gates.serving_cases import CONTRACT, DIGEST, NOW, OTHER, Tree, load_facts, start_facts
from unit.gates.test_fidelity import PATHS, noise, scaled, table

SEAL = 3
SPACE: Tree = {
    "parameters": {
        "max_batch": {"values": [1, 2, 4, 8, 16], "default": 4},
        "dtype": {"values": ["bfloat16", "float32", "broken"], "default": "bfloat16"},
    }
}
SEARCH: Tree = {
    "space": SPACE,
    "traffic": [{"name": "c4", "requests": 16, "concurrency": 4, "isl": [8, 9], "osl": [32, 32]}],
    "metrics": ["output_tokens_per_s"],
    "trials": 8,
    "trials_per_round": 3,
    "finalists": 2,
    "repeats": 3,
}
Settings = Mapping[str, Setting]
# How fast a configuration is, or what is wrong with it.
Landscape = Callable[[Settings], float | str]


def contract(**changes: object) -> SealedContract:
    """Return a sealed contract whose search is `SEARCH` with some changes."""
    raw = CONTRACT.model_dump(mode="json") | {"search": SEARCH | changes}
    return SealedContract(
        contract=ServiceContract.model_validate(raw), digest=OTHER, folder="f", files={}
    )


def hill(settings: Settings) -> float | str:
    """Two configurations are much faster than all others, and one of them breaks the model."""
    if settings.get("dtype") == "broken":
        return "unfaithful"
    if settings.get("max_batch") == 1:
        return "crashed"
    return 2.0 if settings.get("max_batch") == 16 else 1.1


def evidence(
    stage: str,
    trials: Mapping[int, Settings],
    landscape: Landscape,
    *,
    swings: Sequence[float] = (1.0,),
) -> Evidence:
    """Return the evidence of one job that tried these configurations, each start with its swing."""
    own = _trial(0, {}, 1.0, [1.0] * len(swings))
    others = [_trial(n, chosen, landscape(chosen), swings) for n, chosen in trials.items()]
    facts: Tree = {
        "bits": digest_json([stage, list(trials)]),
        "contract_seen": OTHER,
        "model_name": "tiny",
        "model_digest": DIGEST,
        "separation": "container",
        "sandbox": "bubblewrap",
        "cpu_model": "cpu",
        "cores": 2,
        "versions": {},
        "stage": stage,
        "trials": [own, *others],
        "seconds": 10.0,
    }
    return Evidence.model_validate(
        {
            "kind": "search",
            "job_id": f"job-{min(trials)}",
            "status": "done",
            "purpose": "screen",
            "target": "local",
            "candidate": None,
            "contract": OTHER,
            "started_at": NOW,
            "ended_at": NOW,
            "command": ["search"],
            "remote_digest": DIGEST,
            "search": facts,
        }
    )


@cache
def honest_tables() -> tuple[Tree, ...]:
    """Return the scores of an engine that is as near to the reference as the trusted path."""
    return tuple(table(path).model_dump(mode="json") for path in PATHS)


def _trial(number: int, options: Settings, fate: float | str, swings: Sequence[float]) -> Tree:
    arm = "candidate" if number else "baseline"
    speed = fate if isinstance(fate, float) else 9.0  # what is broken looks fastest of all
    starts = [start_facts(arm, restart) for restart in range(len(swings))]
    loads = [load_facts(arm, restart, speed=speed * by) for restart, by in enumerate(swings)]
    tables = [dict(each) for each in honest_tables()]
    match fate:
        case "crashed":
            gone = {"code": "crashed", "call": None, "detail": "killed by SIGSEGV"}
            starts[0] |= {"incidents": [gone], "healthy": 0, "ready_s": None}
        case "never_healthy":
            starts[0] |= {"healthy": 0, "ready_s": None}
            loads = []
        case "unfaithful":
            tables[1]["kl"] = scaled(noise("decode"), 40, range(300))
        case "client_saturated":
            loads[0] |= {"client_lag_p99_ms": 1e4}
        case "infrastructure":
            loads[0] |= {"exit_code": -9, "was_cancelled": True}
        case _:
            pass
    fidelity = {"arm": arm, "restart": 0, "lengths": [64], "scores": tables, "seconds": 1.0}
    return {
        "number": number,
        "options": dict(options),
        "deployments": starts,
        "fidelity": [fidelity] if number else [],
        "loads": loads,
    }


@dataclass
class Bench:
    """A keeper's part that a search needs: it keeps attempts and outcomes, and runs jobs at once.

    `dies` holds the numbers of jobs that end without a result; `hangs` of those that never end.
    Where it `hides`, nothing that was recorded can be read yet. `swing` is by how much a job with
    several starts mistakes the speed in each.
    """

    sealed: SealedContract
    landscape: Landscape = hill
    dies: frozenset[int] = frozenset()
    hangs: frozenset[int] = frozenset()
    rounds: list[Round] = field(default_factory=list[Round])
    hides: bool = False
    swing: Callable[[int], float] = lambda _: 1.0
    keys: list[str] = field(default_factory=list[str])
    ended: dict[str, Evidence] = field(default_factory=dict[str, Evidence])

    def arm(self) -> SearchArm:
        """Return a search arm as a new server process has it: with nothing in memory."""
        docket = SimpleNamespace(
            ruling_seal=lambda: SimpleNamespace(seq=SEAL),
            attempts=self._attempts,
            outcome=self._outcome,
            stored=lambda digest: self.ended[digest],  # pyright: ignore[reportUnknownLambdaType]
        )
        campaign = SimpleNamespace(budget=SimpleNamespace(job_wall_s=600.0))
        files = SimpleNamespace(
            campaign=campaign, contracts={self.sealed.contract.name: self.sealed}
        )
        court = SimpleNamespace(
            docket=docket, sealed=lambda: files, start=self._start, follow=self._follow
        )
        return SearchArm(cast("Court", court))

    def searched(self):
        """Return where the search stands when nothing is left to do, or when a job stopped it."""
        return asyncio.run(self.arm().go_on("", target="local", wait_s=50, on_progress=None))

    def _attempts(self):
        for number in range(0 if self.hides else len(self.rounds)):
            attempt = SimpleNamespace(
                job_id=f"{number}", tool="search_config", contract="completions", target="local"
            )
            yield attempt, SimpleNamespace(seq=SEAL + 1 + number)

    def _outcome(self, job_id: str) -> tuple[SimpleNamespace, None] | None:
        if int(job_id) in self.hangs:
            return None
        key = self._key(int(job_id))
        return SimpleNamespace(evidence=key), None

    def _key(self, number: int) -> str:
        key = digest_json(number)
        asked = self.rounds[number]
        if key not in self.ended:
            trials = {each.number: each.settings for each in asked.proposals}
            swings = [
                self.swing(each) if asked.restarts > 1 else 1.0 for each in range(asked.restarts)
            ]
            found = evidence(asked.stage, trials, self.landscape, swings=swings)
            if number in self.dies:
                found = found.model_copy(update={"search": None, "status": JobStatus.LOST})
            self.ended[key] = found
        return key

    async def _start(
        self,
        tool: str,
        *,
        candidate: str | None,
        target: str,
        purpose: Purpose,
        request_key: str,
        round: Round,
    ) -> Started:
        if request_key in self.keys:
            return Started(job_id=str(self.keys.index(request_key)), is_new=False)
        self.keys.append(request_key)
        assert (tool, candidate, target, purpose) == ("search_config", None, "local", "screen")
        self.rounds.append(round)
        return Started(job_id=str(len(self.rounds) - 1), is_new=True)

    async def _follow(self, job_id: str, *, wait_s: float, on_progress: object) -> JobReport:
        assert wait_s >= 0
        number, status = int(job_id), JobStatus.DONE
        if number in self.hangs:
            status = JobStatus.RUNNING
        elif number in self.dies:
            status = JobStatus.LOST
        return JobReport(
            job_id=job_id,
            tool="search_config",
            status=status,
            candidate=None,
            contract="completions",
            purpose=Purpose.SCREEN,
            target="local",
            evidence=self._key(number) if status is JobStatus.DONE else None,
            head=DIGEST,
        )

    def tried(self) -> list[Settings]:
        """Return every configuration that a job was told to explore."""
        rounds = [each for each in self.rounds if each.stage == "explore"]
        return list(
            itertools.chain.from_iterable([p.settings for p in r.proposals] for r in rounds)
        )
