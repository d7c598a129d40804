"""A keeper that remembers what it was asked and answers from prepared values."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from inferproof.campaign.files import CampaignFiles
from inferproof.core.candidate import Candidate, Manifest
from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.errors import InferproofError, NotFound, SealBroken
from inferproof.core.evidence import BuildFacts, Diagnostic, Evidence, HotSpot, RunFacts
from inferproof.core.reports import JobReport, PromotionReport, Started
from inferproof.core.values import JobStatus, Outcome, Purpose, Reason, Verdict
from inferproof.search.arm import SearchReport
from inferproof.search.judging import Gain, Tried
from inferproof.search.standing import Standing
from inferproof.tools.spec import Progress, StartedTool

ENTRY = "e" * 64
HEAD = "a" * 64
CANDIDATE = "c" * 64
CONTRACT = "d" * 64
EVIDENCE = "e" * 64
AT = datetime(2026, 11, 30, tzinfo=UTC)


@dataclass(frozen=True)
class FakeStatus:
    demo: bool = False
    summary: str = "campaign tiny: 1 of 2 components promoted"
    next_steps: tuple[str, ...] = ("call submit_candidate",)


def verdict(outcome: Outcome, code: Reason, reason: str = "measured") -> Verdict:
    return Verdict(
        gate="numerics",
        gate_digest="b" * 64,
        outcome=outcome,
        code=code,
        reason=reason,
        next_step="do the next thing",
    )


def job_report(
    job_id: str = "job-1",
    *,
    status: JobStatus = JobStatus.DONE,
    verdicts: tuple[Verdict, ...] = (verdict(Outcome.PASS, Reason.ACCEPTED),),
    evidence: str | None = None,
    failure: str = "",
) -> JobReport:
    judged = status is JobStatus.DONE and verdicts
    return JobReport(
        job_id=job_id,
        tool="check_numerics",
        status=status,
        overall=verdicts[0].outcome if judged else None,
        verdicts=verdicts if judged else (),
        candidate=CANDIDATE,
        contract=CONTRACT,
        purpose=Purpose.PRACTICE,
        target="local",
        evidence=evidence,
        entry="f" * 64 if status.is_final else None,
        head=HEAD,
        progress_done=3,
        progress_total=12,
        progress_message="timing",
        failure=failure,
    )


def build_facts(diagnostics: int = 2, message: str = "expected ';'") -> BuildFacts:
    return BuildFacts(
        language="cpp",
        ok=False,
        code=Reason.COMPILE_FAILED,
        compiler="g++ 12.2.0",
        command=(("g++", "-O3"),),
        seconds=0.5,
        diagnostics=tuple(
            Diagnostic(file="kernel.cpp", line=n, severity="error", message=message)
            for n in range(diagnostics)
        ),
        cache_key="9" * 64,
    )


def evidence(
    kind: str = "compile", *, build: BuildFacts | None = None, run: RunFacts | None = None
) -> Evidence:
    return Evidence.model_validate(
        {
            "kind": kind,
            "job_id": "job-1",
            "status": JobStatus.DONE,
            "purpose": Purpose.PRACTICE,
            "target": "local",
            "candidate": CANDIDATE,
            "contract": CONTRACT,
            "started_at": AT,
            "ended_at": AT,
            "command": ("grade",),
            "remote_digest": "8" * 64,
            "build": build,
            "run": run,
        }
    )


@dataclass
class FakeRollout:
    """The deployments that run: a job and its facts, or none."""

    job_id: str | None = None
    stands: DeployFacts | None = None
    asked: list[int] = field(default_factory=list[int])

    async def scale(self, candidate: str, *, target: str, replicas: int) -> str | None:
        self.asked.append(replicas)
        return self.job_id

    async def facts(self, job_id: str) -> DeployFacts | None:
        return self.stands


class FakeSearch:
    """A search that tried two configurations, the one right and the other not, and is done."""

    async def go_on(
        self, contract: str, *, target: str, wait_s: float, on_progress: Progress | None
    ) -> SearchReport:
        right = Tried(
            number=1,
            settings={"dtype": "float32"},
            stage="confirm",
            evidence=EVIDENCE,
            gains=(
                Gain(
                    traffic="single",
                    metric="tpot_ms",
                    default=2.0,
                    figure=1.0,
                    value=2.0,
                    low=1.5,
                    high=2.5,
                ),
            ),
            fault=None,
        )
        fault = verdict(Outcome.FAIL, Reason.CRASHED)
        wrong = replace(right, number=2, settings={"dtype": "int1"}, gains=(), fault=fault)
        standing = Standing(
            contract=contract,
            asked=2,
            phase="done",
            explored=(),
            confirmed=(right, wrong),
            pending=(),
            tuned=right,
            seconds=20.0,
            evidence=EVIDENCE,
        )
        return SearchReport(standing=standing, job=None)


@dataclass
class FakeKeeper:
    """Jobs end as `ends_with` says; a job that never ends waits until it is cancelled."""

    ends_with: JobReport = field(default_factory=job_report)
    never_ends: bool = False
    stored: Evidence = field(default_factory=lambda: evidence(build=build_facts()))
    promotion: PromotionReport = field(
        default_factory=lambda: PromotionReport(
            outcome=Outcome.APPROVAL_REQUIRED,
            code=Reason.APPROVAL_NEEDED,
            reason="a person must approve promotions",
            next_step="a person runs: inferproof approve ap-1",
            approval_id="ap-1",
            job=job_report(),
            head=HEAD,
        )
    )
    error: InferproofError | Exception | None = None
    started: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    cancelled: list[str] = field(default_factory=list[str])
    following: asyncio.Event = field(default_factory=asyncio.Event)
    known: tuple[JobReport, ...] = ()
    rollout: FakeRollout = field(default_factory=FakeRollout)
    search: FakeSearch = field(default_factory=FakeSearch)

    def head(self) -> str:
        return HEAD

    async def status(self) -> FakeStatus:
        if self.error is not None:
            raise self.error
        return FakeStatus()

    def sealed(self) -> CampaignFiles:
        raise SealBroken("the campaign is not sealed", hint="a person runs: inferproof seal")

    def submit_candidate(self, folder: Path) -> Candidate:
        if not folder.is_dir():
            raise NotFound(f"no folder {str(folder)!r}", hint="pass the folder of candidate.yaml")
        manifest = Manifest(
            contract="rms_norm", language="cpp", source="kernel.cpp", entry="rms_norm"
        )
        return Candidate(digest=CANDIDATE, manifest=manifest, files={"kernel.cpp": "1" * 64})

    def entry_of(self, candidate: str) -> str:
        return ENTRY

    async def start(
        self,
        tool: StartedTool,
        *,
        candidate: str | None,
        target: str,
        purpose: Purpose,
        request_key: str | None,
        argv: tuple[str, ...] = (),
        replicas: int = 1,
    ) -> Started:
        self.started.append((tool, candidate))
        return Started(job_id="job-1", is_new=not self.known)

    async def follow(
        self,
        job_id: str,
        *,
        wait_s: float,
        on_progress: Progress | None,
        replicas: int | None = None,
    ) -> JobReport:
        if job_id != "job-1":
            raise NotFound(f"no job {job_id!r}", hint="call job without job_id to list jobs")
        if on_progress is not None:
            await on_progress(1, 12, "compiling")
            await on_progress(1, 12, "still compiling")
            await on_progress(3, 12, "timing")
        self.following.set()
        if self.never_ends and wait_s > 0:
            await asyncio.Event().wait()
        return self.ends_with

    async def report(self, job_id: str) -> JobReport:
        return self.ends_with

    async def jobs(self) -> Sequence[JobReport]:
        return self.known

    async def cancel(self, job_id: str) -> JobReport:
        await asyncio.sleep(0)
        self.cancelled.append(job_id)
        return job_report(job_id, status=JobStatus.CANCELLED)

    async def promote(
        self, candidate: str, *, target: str, wait_s: float, on_progress: Progress | None
    ) -> PromotionReport:
        return self.promotion

    def evidence(self, ref: str) -> Evidence:
        return self.stored


def hot_spot(name: str) -> HotSpot:
    return HotSpot(name=name, self_s=0.1, calls=3, share=0.5)
