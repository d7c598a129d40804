"""What a tool answers: a summary first, then facts with units, always within 8 KB.

Hosts show a model only the structured result, and cut long ones in the middle, so each result
carries its own summary and next steps and says what it left out.
"""

import json
import re
from collections.abc import Iterable
from typing import Literal, TypeVar

from inferproof.core.reports import JobReport
from inferproof.core.values import Digest, JobStatus, Outcome, Value

BUDGET_BYTES = 8000
POLL_AFTER_S = 5.0
# Control codes, and what hides text or turns its direction: marks, overrides, isolates, tags.
_CONTROL = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class Fact(Value):
    """One measured or recorded fact; `unit` is empty for counts and words."""

    name: str
    value: float | int | str
    unit: str = ""


class GateLine(Value):
    """What one gate said."""

    gate: str
    outcome: Outcome
    code: str
    reason: str


class JobHandle(Value):
    """A job that can be asked for again with the tool `job`; zero seconds when it has ended."""

    job_id: str
    tool: str
    state: JobStatus
    poll_after_s: float
    progress: str = ""


class ToolResult(Value):
    """What every tool returns.

    `ok` is false when something was refused, failed or is not decided; `verdict` is null when
    nothing was judged (yet). `head` is the ledger's head: keep it, `inferproof verify --head`
    takes it. `left_out` counts what was cut to stay within 8 KB. `mode` is `enforced` when whoever
    asked can neither read nor change what the server stores, as another user or machine.
    """

    summary: str
    ok: bool
    verdict: Outcome | None = None
    code: str = ""
    next_steps: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    entry: Digest | None = None
    head: Digest
    left_out: dict[str, int] = {}
    mode: Literal["evident", "enforced"] = "evident"


class JobResult(ToolResult):
    """The result of a tool that works through jobs."""

    job: JobHandle | None = None
    gates: tuple[GateLine, ...] = ()
    jobs: tuple[JobHandle, ...] = ()
    rows: tuple[str, ...] = ()
    evidence: Digest | None = None
    approval_id: str | None = None


R = TypeVar("R", bound=ToolResult)


def clip(text: str, limit: int = 400) -> str:
    """Return `text` without control codes, its middle cut out when it is over `limit`."""
    if len(text) <= 2 * limit:
        clean = _CONTROL.sub("", text)
        if len(clean) <= limit:
            return clean
    head = limit * 2 // 3
    tail = limit - head
    first, last = _CONTROL.sub("", text[: 2 * head])[:head], _CONTROL.sub("", text[-2 * tail :])
    return f"{first} [about {len(text) - limit} characters left out] {last[-tail:]}"


def quoted(text: str, limit: int) -> str:
    """Return foreign text as one closed quotation: data, whatever it says."""
    return json.dumps(clip(text, limit), ensure_ascii=False)


def size_bytes(result: ToolResult) -> int:
    """Return how long the result is as JSON."""
    return len(result.model_dump_json().encode())


def fitted(result: R, *, budget_bytes: int = BUDGET_BYTES) -> R:
    """Return the result with its longest lists shortened until it is within the budget."""
    while size_bytes(result) > budget_bytes:
        lists = _list_sizes(result)
        if not lists:
            break
        name = max(lists, key=lambda key: lists[key])
        items = getattr(result, name)
        keep = len(items) // 2
        left_out = dict(result.left_out)
        left_out[name] = left_out.get(name, 0) + len(items) - keep
        result = result.model_copy(update={name: items[:keep], "left_out": left_out})
    return result


def _list_sizes(result: ToolResult) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for name in type(result).model_fields:
        value = getattr(result, name)
        if isinstance(value, tuple) and value:
            lengths[name] = sum(len(str(item)) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return lengths


def handle_of(report: JobReport) -> JobHandle:
    """Return the handle by which a job is asked for again."""
    progress = ""
    if not report.status.is_final and report.progress_total > 0:
        progress = f"{report.progress_done:g} of {report.progress_total:g}"
        if report.progress_message:
            progress += f": {clip(report.progress_message, 120)}"
    return JobHandle(
        job_id=report.job_id,
        tool=report.tool,
        state=report.status,
        poll_after_s=0.0 if report.status.is_final else POLL_AFTER_S,
        progress=progress,
    )


def of_job(report: JobReport, *, facts: Iterable[Fact] = (), rows: Iterable[str] = ()) -> JobResult:
    """Return what a job's report says to whoever asked for the job."""
    deciding = report.deciding
    code = deciding.code.value if deciding else ""
    if report.status in (JobStatus.FAILED, JobStatus.LOST, JobStatus.INFRA):
        code = "infrastructure"
    return fitted(
        JobResult(
            summary=_summary(report),
            ok=report.status is JobStatus.DONE and report.overall in (None, Outcome.PASS),
            verdict=report.overall,
            code=code,
            next_steps=_next_steps(report),
            facts=tuple(facts),
            entry=report.entry,
            head=report.head,
            job=handle_of(report),
            gates=tuple(
                GateLine(
                    gate=v.gate, outcome=v.outcome, code=v.code.value, reason=clip(v.reason, 300)
                )
                for v in report.verdicts
            ),
            rows=tuple(rows),
            evidence=report.evidence,
        )
    )


def _summary(report: JobReport) -> str:
    what = f"{report.tool} ({report.purpose.value}, target {report.target}), job {report.job_id}"
    match report.status:
        case JobStatus.QUEUED | JobStatus.RUNNING:
            told = clip(report.failure) or handle_of(report).progress
            return f"{what}: {report.status.value}" + (f", {told}" if told else "")
        case JobStatus.FAILED | JobStatus.LOST | JobStatus.INFRA:
            return (
                f"{what}: INFRASTRUCTURE, the bench failed and the candidate is not blamed. "
                f"{clip(report.failure)}"
            )
        case JobStatus.CANCELLED:
            return f"{what}: cancelled, nothing was judged"
        case JobStatus.DONE:
            return _done_summary(what, report)


def _done_summary(what: str, report: JobReport) -> str:
    deciding = report.deciding
    if report.overall is None or deciding is None:
        return f"{what}: done, practice only, nothing was judged"
    return (
        f"{what}: {report.overall.value.upper()} by gate {deciding.gate} "
        f"({deciding.code.value}): {clip(deciding.reason)}"
    )


def _next_steps(report: JobReport) -> tuple[str, ...]:
    match report.status:
        case JobStatus.QUEUED | JobStatus.RUNNING if report.tool == "deploy":
            return (
                "send requests to the endpoint once every replica is healthy",
                "call deploy with another number of replicas to scale it",
                f"call job_cancel with job_id {report.job_id} to end it",
            )
        case JobStatus.QUEUED | JobStatus.RUNNING:
            return (f"call job with job_id {report.job_id} until it has ended",)
        case JobStatus.FAILED | JobStatus.LOST | JobStatus.INFRA:
            return (
                f"call {report.tool} again with the same arguments and a new request_key",
                "if it fails again: a person runs `inferproof doctor`",
            )
        case JobStatus.CANCELLED:
            return (f"call {report.tool} again when you want the answer",)
        case JobStatus.DONE:
            return _done_next_steps(report)


def _done_next_steps(report: JobReport) -> tuple[str, ...]:
    steps = tuple(
        dict.fromkeys(
            clip(v.next_step, 300)
            for v in report.verdicts
            if v.next_step and v.outcome is report.overall
        )
    )
    if steps or report.candidate is None:
        return steps
    match report.tool, report.overall:
        case "compile_kernel", Outcome.PASS | None:
            return ("call check_numerics with this candidate, purpose practice",)
        case "check_numerics", Outcome.PASS:
            return ("call promote with this candidate when you cannot make it faster",)
        case "profile" | "run", _:
            return ("change the sources, call submit_candidate, then check_numerics",)
        case _:
            return (f"call evidence with ref {report.job_id} to see where",)
