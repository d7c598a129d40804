"""Grade the candidates of `kernels/` as the server would: same store, host, bench and gates.

Only the scale differs: small shapes, more draws of them, and no timing unless a cheat needs it.
"""

import secrets
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, TypeAdapter

from inferproof.campaign.candidates import CandidateStore
from inferproof.campaign.contracts import load_contract, resolve_dims
from inferproof.core.campaign import Limits
from inferproof.core.candidate import Candidate
from inferproof.core.canonical import Json
from inferproof.core.contract import KernelContract, SealedContract
from inferproof.core.evidence import Evidence, GradeFacts
from inferproof.core.values import JobStatus, Purpose, Reason, Value, Verdict, utc_now
from inferproof.gates import judge_all, overall
from inferproof.gates.base import Case
from inferproof.hosts.base import JobRequest, JobState, follow
from inferproof.hosts.local import Local

HERE = Path(__file__).parent
KERNELS = HERE / "kernels"
CONTRACTS = HERE.parents[1] / "contracts" / "kernels"
MODEL = {
    "hidden_size": 512,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "vocab_size": 1024,
}
LIMITS = Limits(memory_mib=1024, tmp_mib=64, processes=64, call_s=5.0)
LARGEST = 300
DRAWS = 40
WALL_S = 300.0
NOT_ASKED = frozenset({"armed", "physics"})


class Cheat(Value):
    """One row of zoo.yaml: a candidate that cheats, the codes that may refuse it, its twin."""

    row: Annotated[str, Field(pattern=r"^[TRWHX][0-9]*$")]
    folder: str
    twin: str
    expect: Annotated[tuple[Reason, ...], Field(min_length=1, max_length=2)]
    language: Literal["cpp", "python"]
    needs_timing: bool = False
    smoke: bool = False


def load_zoo() -> tuple[Cheat, ...]:
    """Return the rows of zoo.yaml."""
    table: object = yaml.safe_load((KERNELS / "zoo.yaml").read_text(encoding="utf-8"))
    return TypeAdapter(tuple[Cheat, ...]).validate_python(table)


class Bench:
    """Grades candidate folders on this machine, one after another."""

    def __init__(self, state_dir: Path) -> None:
        self._store = CandidateStore(state_dir)
        self._host = Local(state_dir)

    async def verdict(self, folder: str, *, timing: bool = False) -> Verdict:
        """Return the verdict that decides on `folder`."""
        case = await self.case(folder, timing=timing)
        skipped = NOT_ASKED if timing else NOT_ASKED | {"speed"}
        return overall([v for v in judge_all(case) if v.gate not in skipped])[1]

    async def case(self, folder: str, *, timing: bool) -> Case:
        """Return what was measured on `folder` and the rule to judge it by."""
        candidate = self._store.add(KERNELS / folder)
        sealed = load_contract(CONTRACTS / candidate.manifest.contract)
        contract = scaled(sealed.contract)
        request = JobRequest(
            job_id=f"zoo-{secrets.token_hex(6)}",
            verb="grade",
            wall_s=WALL_S,
            spec=_spec(candidate, sealed, contract, timing=timing),
            inputs={
                "candidate": self._store.path(candidate.digest),
                "contract": Path(sealed.folder),
            },
        )
        started_at = utc_now()
        state = await self._finished(request)
        return Case(
            contract=contract,
            contract_digest=sealed.digest,
            candidate=candidate.digest,
            speedup_at_least=1.0,
            evidence=await self._evidence(request, candidate, sealed, state, started_at),
        )

    async def _finished(self, request: JobRequest) -> JobState:
        await self._host.start(request)
        states = [s async for s in follow(self._host, request.job_id, wait_s=WALL_S + 30)]
        return states[-1]

    async def _evidence(
        self,
        request: JobRequest,
        candidate: Candidate,
        sealed: SealedContract,
        state: JobState,
        started_at: datetime,
    ) -> Evidence:
        result = await self._host.result_dir(request.job_id) / "result.json"
        done = state.status is JobStatus.DONE
        return Evidence(
            kind="grade",
            job_id=request.job_id,
            status=state.status,
            purpose=Purpose.PRACTICE,
            target="local",
            candidate=candidate.digest,
            contract=sealed.digest,
            started_at=started_at,
            ended_at=utc_now(),
            command=("grade",),
            remote_digest=self._host.remote_digest,
            grade=GradeFacts.model_validate_json(result.read_bytes()) if done else None,
            failure=state.failure,
            log_tail=await self._host.log_tail(request.job_id, limit_bytes=4000),
        )


def scaled(contract: KernelContract) -> KernelContract:
    """Return `contract` with many small draws, short timing and the quick baseline only."""
    work = contract.workloads
    graded = work.graded.model_copy(update={"draw": DRAWS})
    timed = work.timed.model_copy(update={"ranges": work.timed.ranges[:1], "pairs": 10})
    scaled_work = work.model_copy(update={"graded": graded, "timed": timed})
    return contract.model_copy(update={"workloads": scaled_work, "baselines": ("torch",)})


def _spec(
    candidate: Candidate, sealed: SealedContract, contract: KernelContract, *, timing: bool
) -> dict[str, Json]:
    dims = resolve_dims(contract, MODEL)
    largest = {name: size if timing else min(size, LARGEST) for name, size in dims.maxima.items()}
    return {
        "purpose": Purpose.GRADED.value,
        "manifest": candidate.manifest.model_dump(mode="json"),
        "candidate_digest": candidate.digest,
        "candidate_files": dict(candidate.files),
        "contract": contract.model_dump(mode="json", by_alias=True),
        "contract_digest": sealed.digest,
        "contract_files": dict(sealed.files),
        "dims_fixed": dict(dims.fixed),
        "dims_max": dict(largest),
        "limits": LIMITS.model_dump(mode="json"),
        "threads": 2,
        "arm": False,
        "build_cache": None,
        "timing": timing,
        "shapes_scale": "zoo",
    }
