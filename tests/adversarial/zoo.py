"""Grade the candidates of `kernels/` as the server would: same store, job, host, bench and gates.

Only the scale differs: small shapes, more draws of them, and no timing unless a cheat needs it.
"""

import secrets
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, TypeAdapter

from inferproof.backends import grade
from inferproof.backends.base import Against, Work
from inferproof.backends.grade import GradeOrder
from inferproof.campaign.candidates import CandidateStore
from inferproof.campaign.contracts import load_contract, resolve_dims
from inferproof.core.campaign import Limits
from inferproof.core.contract import KernelContract
from inferproof.core.evidence import Evidence
from inferproof.core.sealed import SealedContract
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
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 16,
    "vocab_size": 32000,
}
LIMITS = Limits(memory_mib=1024, tmp_mib=64, processes=64, call_s=5.0)
WIDE_MODEL = {**MODEL, "hidden_size": 1536, "intermediate_size": 1536}
LARGEST = 300
ONE_SHAPE = 100
DRAWS = 40
WALL_S = 300.0
NOT_ASKED = frozenset({"armed", "physics"})


class Cheat(Value):
    """One row of zoo.yaml: a candidate that cheats, the codes that may refuse it, its twin.

    `one_shape` has it called with one shape again and again, as a timing loop does; `wide` gives it
    and its twin rows of more than 1000 elements.
    """

    row: Annotated[str, Field(pattern=r"^[TRWHX][0-9]*$")]
    folder: str
    twin: str
    expect: Annotated[tuple[Reason, ...], Field(min_length=1, max_length=2)]
    language: Literal["cpp", "python"]
    needs_timing: bool = False
    one_shape: bool = False
    wide: bool = False
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

    async def verdict(
        self, folder: str, *, timing: bool = False, one_shape: bool = False, wide: bool = False
    ) -> Verdict:
        """Return the verdict that decides on `folder`."""
        skipped = NOT_ASKED if timing else NOT_ASKED | {"speed"}
        case = await self.case(folder, timing=timing, one_shape=one_shape, wide=wide)
        return overall([v for v in judge_all(case) if v.gate not in skipped])[1]

    async def case(self, folder: str, *, timing: bool, one_shape: bool, wide: bool = False) -> Case:
        """Return what was measured on `folder` and the rule to judge it by."""
        work = self._work(folder)
        name = work.candidate.manifest.contract
        against = rule(name, timing=timing, one_shape=one_shape, wide=wide)
        order = GradeOrder(
            purpose=Purpose.GRADED, threads=2, arm=False, timing=timing, shapes_scale="zoo"
        )
        return Case(
            contract=against.sealed.kernel,
            contract_digest=against.sealed.digest,
            candidate=work.candidate.digest,
            speedup_at_least=1.0,
            evidence=await self._evidence(grade.request(work, against, order), work, against),
        )

    def _work(self, folder: str) -> Work:
        candidate = self._store.add(KERNELS / folder)
        return Work(
            job_id=f"zoo-{secrets.token_hex(6)}",
            wall_s=WALL_S,
            candidate=candidate,
            contents=self._store.contents(candidate.digest),
            limits=LIMITS,
        )

    async def _evidence(self, request: JobRequest, work: Work, against: Against) -> Evidence:
        started_at = utc_now()
        state = await self._finished(request)
        result = await self._host.result_dir(request.job_id) / "result.json"
        is_done = state.status is JobStatus.DONE
        return Evidence(
            kind="grade",
            job_id=request.job_id,
            status=state.status,
            purpose=Purpose.PRACTICE,
            target="local",
            candidate=work.candidate.digest,
            contract=against.sealed.digest,
            started_at=started_at,
            ended_at=utc_now(),
            command=("grade",),
            remote_digest=self._host.remote_digest,
            grade=grade.parse(result.read_bytes()) if is_done else None,
            failure=state.failure,
            log_tail=await self._host.log_tail(request.job_id, limit_bytes=4000),
        )

    async def _finished(self, request: JobRequest) -> JobState:
        await self._host.start(request)
        states = [s async for s in follow(self._host, request.job_id, wait_s=WALL_S + 30)]
        return states[-1]


def rule(name: str, *, timing: bool, one_shape: bool, wide: bool = False) -> Against:
    """Return the shipped contract `name` at the zoo's scale."""
    shipped = load_contract(CONTRACTS / name)
    dims = resolve_dims(shipped.kernel, WIDE_MODEL if wide else MODEL)
    largest = {dim: size if timing else min(size, LARGEST) for dim, size in dims.maxima.items()}
    usual = {dim: min(size, ONE_SHAPE) for dim, size in dims.maxima.items()} if one_shape else {}
    sealed = SealedContract(
        contract=scaled(shipped.kernel),
        digest=shipped.digest,
        folder=shipped.folder,
        files=shipped.files,
    )
    return Against(
        sealed=sealed,
        contents={file: (CONTRACTS / name / file).read_bytes() for file in shipped.files},
        dims_fixed=usual | dims.fixed,
        dims_max=largest,
    )


def scaled(contract: KernelContract) -> KernelContract:
    """Return `contract` with many small draws, short timing and the quick baseline only."""
    work = contract.workloads
    graded = work.graded.model_copy(update={"draw": DRAWS})
    timed = work.timed.model_copy(update={"ranges": work.timed.ranges[:1], "pairs": 10})
    scaled_work = work.model_copy(update={"graded": graded, "timed": timed})
    return contract.model_copy(update={"workloads": scaled_work, "baselines": ("torch",)})
