"""Measure the engines of `engines/` as a job on a target would: same verb, sandbox, AIPerf, gates.

Only the scale differs: one start, one small traffic shape, and no baseline unless it is asked for.
The verb runs in this process, so that the libraries are loaded once.
"""

import json
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, TypeAdapter

import inferproof.demo
from inferproof.backends import serve as backend
from inferproof.backends.serve import ServeOrder
from inferproof.campaign.candidates import CandidateStore
from inferproof.campaign.contracts import load_contract
from inferproof.core.campaign import Limits, Target
from inferproof.core.evidence import Evidence
from inferproof.core.service import Traffic
from inferproof.core.serving_facts import ServeFacts, Stage
from inferproof.core.values import JobStatus, Purpose, Reason, Value, Verdict, utc_now
from inferproof.gates import judge_all
from inferproof.gates.base import ServiceCase
from inferproof.serving.engines import baseline_plan, candidate_plan
from inferproof_remote.job import SCHEMA
from inferproof_remote.serving.serve import serve

HERE = Path(__file__).parent / "engines"
CHEATS, TWINS = HERE / "cheats", HERE / "twins"
DEMO = Path(inferproof.demo.__file__).parent
HONEST, MODEL = DEMO / "engines" / "static_cache", DEMO / "model"
CONTRACT = Path(__file__).parents[2] / "contracts" / "services" / "completions"
LIMITS = Limits(memory_mib=2048, tmp_mib=64, processes=128, call_s=20.0)
TRAFFIC = Traffic(
    name="few", requests=8, concurrency=4, isl=(40, 72), osl=(24, 36), warmup_requests=1
)
WALL_S = 900.0
NOT_ASKED = frozenset({"fidelity_armed", "quality", "objectives"})


class Cheat(Value):
    """One row of zoo.yaml: an engine that cheats, and the gate and code that must refuse it.

    Where the draw decides which of two rules of that gate sees it first, `or_else` is the other.
    """

    row: Annotated[str, Field(pattern=r"^[SP][0-9]+b?$")]
    folder: str
    gate: Literal["serving", "fidelity", "sampler", "believability", "audit"]
    expect: Reason
    or_else: Reason | None = None
    smoke: bool = False

    @property
    def stages(self) -> tuple[Stage, ...]:
        """How far the engine must come before it is refused."""
        if self.gate in ("serving", "fidelity", "sampler"):
            return ("fidelity",)
        return ("fidelity", "load")


def load_zoo() -> tuple[Cheat, ...]:
    """Return the rows of zoo.yaml."""
    table: object = yaml.safe_load((HERE / "zoo.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(tuple[Cheat, ...]).validate_python(table)


class EngineBench:
    """Measures candidate folders on this machine, one after another."""

    def __init__(self, work: Path, contract: Path = CONTRACT) -> None:
        self.work, self._contract = work, contract
        self._store = CandidateStore(work / "state")
        self._sealed = load_contract(contract)
        fidelity = {"allowed_quantisation": ("int8_per_channel",)}
        self._rule = self._sealed.service.model_copy(
            update={"fidelity": self._sealed.service.fidelity.model_copy(update=fidelity)}
        )

    def overlaid(self, overlay: Path) -> Path:
        """Return a candidate folder: the honest engine with the files of `overlay` over it."""
        folder = self.work / f"candidate-{overlay.name}-{secrets.token_hex(4)}"
        shutil.copytree(HONEST, folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(overlay, folder, dirs_exist_ok=True)
        return folder

    def manifest(self, text: str) -> Path:
        """Return a candidate folder that holds nothing but a manifest."""
        folder = self.work / f"candidate-{secrets.token_hex(4)}"
        folder.mkdir()
        (folder / "candidate.yaml").write_text(f"contract: completions\n{text}", encoding="utf-8")
        return folder

    def measure(
        self,
        folder: Path,
        stages: Sequence[Stage],
        *,
        traffic: Traffic = TRAFFIC,
        baseline: bool = False,
        limits: Limits = LIMITS,
    ) -> ServiceCase:
        """Return what was measured on a candidate folder and the rule to judge it by."""
        order = self._order(folder, stages, traffic, limits=limits, baseline=baseline)
        started_at = utc_now()
        result = serve(self._job_folder(order))
        facts = backend.parse(json.dumps(result).encode())
        return self.case(order, facts, started_at=started_at)

    def case(self, order: ServeOrder, facts: ServeFacts, **times: object) -> ServiceCase:
        """Return the case that the gates look at."""
        evidence = Evidence.model_validate(
            {
                "kind": "serve",
                "job_id": order.job_id,
                "status": JobStatus.DONE,
                "purpose": order.purpose,
                "target": "local",
                "candidate": order.candidate.digest,
                "contract": self._sealed.digest,
                "ended_at": utc_now(),
                "command": ("serve",),
                "remote_digest": "0" * 64,
                "serve": facts,
                **times,
            }
        )
        return ServiceCase(
            contract=self._rule,
            contract_digest=self._sealed.digest,
            candidate=order.candidate.digest,
            speedup_at_least=1.0,
            evidence=evidence,
        )

    def _order(
        self,
        folder: Path,
        stages: Sequence[Stage],
        traffic: Traffic,
        *,
        limits: Limits,
        baseline: bool,
    ) -> ServeOrder:
        candidate = self._store.add(folder)
        plans = {"candidate": candidate_plan(candidate.engine).as_json()}
        if baseline:
            plans["baseline"] = baseline_plan(self._sealed.service.baseline).as_json()
        return ServeOrder(
            job_id=f"zoo-{secrets.token_hex(6)}",
            wall_s=WALL_S,
            purpose=Purpose.PRACTICE,
            stages=tuple(stages),
            candidate=candidate,
            contents=self._store.contents(candidate.digest),
            sealed=self._sealed,
            contract_contents={
                name: (self._contract / name).read_bytes() for name in self._sealed.files
            },
            limits=limits,
            target=Target(host="local"),
            threads=1,
            model_name="tiny",
            model_path=str(MODEL),
            plans=plans,
            replicas=1,
            restarts=1,
            arm=False,
            traffic=(traffic,) if "load" in stages else (),
        )

    def _job_folder(self, order: ServeOrder) -> Path:
        request = backend.request(order)
        folder = self.work / order.job_id
        for name, data in request.inputs.items():
            path = folder / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        body = {
            "schema": SCHEMA,
            "job_id": request.job_id,
            "verb": request.verb,
            "wall_s": request.wall_s,
            "spec": dict(request.spec),
        }
        (folder / "job.json").write_text(json.dumps(body), encoding="utf-8")
        return folder


def judged(case: ServiceCase) -> list[Verdict]:
    """Return what the gates say, but for those that need mutants or a baseline."""
    return [each for each in judge_all(case) if each.gate not in NOT_ASKED]
