"""What the keeper tells its caller about jobs and promotions; tools turn these into results."""

from typing import Literal

from inferproof.core.values import Digest, JobStatus, Outcome, Purpose, Reason, Value, Verdict

ToolName = Literal[
    "compile_kernel",
    "check_numerics",
    "profile",
    "run",
    "promote",
    "run_aiperf",
    "deploy",
    "search_config",
]


class Started(Value):
    """A job that was asked for; `is_new` is false when the same request key had started it."""

    job_id: str
    is_new: bool


class JobReport(Value):
    """A job as it stands now; verdicts and `entry` appear once it is final."""

    job_id: str
    tool: ToolName
    status: JobStatus
    overall: Outcome | None = None
    verdicts: tuple[Verdict, ...] = ()
    candidate: Digest | None
    contract: str | None
    purpose: Purpose
    target: str
    evidence: Digest | None = None
    entry: Digest | None = None
    head: Digest
    progress_done: float = 0.0
    progress_total: float = 0.0
    progress_message: str = ""
    failure: str = ""

    @property
    def deciding(self) -> Verdict | None:
        """The first verdict whose outcome is the overall one."""
        return next((v for v in self.verdicts if v.outcome is self.overall), None)


class PromotionReport(Value):
    """What became of a request to make a candidate the champion."""

    outcome: Outcome
    code: Reason
    reason: str
    next_step: str
    approval_id: str | None = None
    job: JobReport | None = None
    head: Digest
