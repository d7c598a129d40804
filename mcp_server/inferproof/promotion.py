"""How a candidate becomes the champion: every gate again, then a person, then one entry."""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol

from inferproof.core.campaign import Campaign
from inferproof.core.reports import JobReport, PromotionReport, Started, ToolName
from inferproof.core.values import Digest, JobStatus, Outcome, Purpose, Reason, Verdict, utc_now
from inferproof.docket import Docket
from inferproof.gates import current_digests
from inferproof.ledger import approvals
from inferproof.ledger.approvals import Subject
from inferproof.ledger.bodies import Attempt, OutcomeOfJob, Promotion, dump, parse_body
from inferproof.ledger.store import Ledger

OnProgress = Callable[[float, float, str], Awaitable[None]]
_ON_WHAT_IT_DOES = ("numerics", "conduct", "fidelity", "audit")
_GOOD = (Outcome.PASS, Outcome.APPROVAL_REQUIRED)


class Court(Protocol):
    """The part of the keeper that a promotion needs."""

    ledger: Ledger
    docket: Docket

    async def start(
        self, tool: ToolName, *, candidate: str | None, target: str, purpose: Purpose
    ) -> Started:
        """Start a job."""
        ...

    async def follow(
        self, job_id: str, *, wait_s: float, on_progress: OnProgress | None
    ) -> JobReport:
        """Wait for a job."""
        ...

    async def report(self, job_id: str) -> JobReport:
        """Report a job."""
        ...


async def promote(
    court: Court,
    subject: Subject,
    campaign: Campaign,
    *,
    wait_s: float,
    on_progress: OnProgress | None,
) -> PromotionReport:
    """Return what became of the request to make `subject` the champion.

    The chain of gates runs anew for each promotion; while a person is asked, its result stays.
    """
    job_id = await _running_or_good(court, subject)
    if job_id is None:
        started = await court.start(
            "promote", candidate=subject.candidate, target=subject.target, purpose=Purpose.GRADED
        )
        job_id = started.job_id
    job = await court.follow(job_id, wait_s=wait_s, on_progress=on_progress)
    refusal = _refusal(court, job)
    return refusal or _ask_or_move(court, subject, campaign, job)


async def _running_or_good(court: Court, subject: Subject) -> str | None:
    """Return the promote job to go on with: still running, or judged good and not yet used."""
    seal = court.docket.seal_in_force()
    spent = {promotion.outcome_seq for promotion in _promotions(court.ledger)}
    for attempt, entry in reversed(tuple(court.docket.attempts())):
        if not _is_about(attempt, subject) or entry.seq < seal.seq:
            continue
        report = await court.report(attempt.job_id)
        if not report.status.is_final:
            return attempt.job_id
        ended = court.docket.outcome(attempt.job_id)
        if ended is None or ended[1].seq in spent or not _is_current(ended[0]):
            return None
        return attempt.job_id if ended[0].overall in _GOOD else None
    return None


def _refusal(court: Court, job: JobReport) -> PromotionReport | None:
    """Return why the job's result cannot be promoted, if it cannot."""
    if not job.status.is_final:
        return PromotionReport(
            outcome=Outcome.INCONCLUSIVE,
            code=Reason.NOT_MEASURED,
            reason=f"job {job.job_id} is {job.status.value}",
            next_step=f"call job with job_id {job.job_id} until it has ended, then promote again",
            job=job,
            head=court.ledger.head,
        )
    if job.overall in _GOOD:
        return None
    deciding = job.deciding
    return PromotionReport(
        outcome=job.overall or Outcome.INCONCLUSIVE,
        code=deciding.code if deciding else Reason.INFRASTRUCTURE,
        reason=deciding.reason if deciding else f"the job is {job.status.value}: {job.failure}",
        next_step=deciding.next_step if deciding else "call promote again",
        job=job,
        head=court.ledger.head,
    )


def _ask_or_move(
    court: Court, subject: Subject, campaign: Campaign, job: JobReport
) -> PromotionReport:
    now = utc_now()
    failed = earlier_failures(court, subject, job.contract)
    must_ask = (
        "promote" in campaign.approvals.required_for
        or job.overall is Outcome.APPROVAL_REQUIRED
        or bool(failed)
    )
    unfinished = approvals.find_unfinished(court.ledger, subject)
    if unfinished is not None or not must_ask:
        return _moved(court, job, approval_id=unfinished)
    decision = approvals.find_valid(court.ledger, subject, now=now)
    if decision.approval_id is not None:
        approvals.use(court.ledger, subject, now=now)
        return _moved(court, job, approval_id=decision.approval_id)
    asked = approvals.request(
        court.ledger,
        subject,
        expires_at=now + timedelta(hours=campaign.approvals.expire_after_h),
        reason=_what_to_approve(job.deciding) + failed,
        now=now,
    )
    return PromotionReport(
        outcome=Outcome.APPROVAL_REQUIRED,
        code=Reason.APPROVAL_NEEDED,
        reason=asked.reason,
        next_step=f"a person runs: inferproof approve {asked.approval_id}; then promote again",
        approval_id=asked.approval_id,
        job=job,
        head=court.ledger.head,
    )


def _moved(court: Court, job: JobReport, *, approval_id: str | None) -> PromotionReport:
    ended = court.docket.outcome(job.job_id)
    attempt, _ = court.docket.attempt(job.job_id)
    if ended is None or attempt.candidate is None or attempt.contract is None:
        raise AssertionError(f"job {job.job_id} was judged without an outcome")
    body = Promotion(
        candidate=attempt.candidate,
        contract=attempt.contract,
        outcome_seq=ended[1].seq,
        approval_id=approval_id,
    )
    court.ledger.append_if(lambda locked: None if _is_on_record(locked, body) else dump(body))
    return PromotionReport(
        outcome=Outcome.PASS,
        code=Reason.ACCEPTED,
        reason=f"{attempt.candidate[:12]} is the champion of {attempt.contract}",
        next_step="go on from it: submit the next candidate with this one as its parent",
        approval_id=approval_id,
        job=job,
        head=court.ledger.head,
    )


def _is_on_record(ledger: Ledger, body: Promotion) -> bool:
    """Whether another server has just promoted by the same proof or under the same approval."""
    return any(
        earlier.outcome_seq == body.outcome_seq
        or (body.approval_id is not None and earlier.approval_id == body.approval_id)
        for earlier in _promotions(ledger)
    )


def _promotions(ledger: Ledger) -> tuple[Promotion, ...]:
    bodies = (parse_body(entry.body) for entry in ledger.entries("promotion"))
    return tuple(body for body in bodies if isinstance(body, Promotion))


def earlier_failures(court: Court, subject: Subject, contract: str | None) -> str:
    """Return how often graded checks failed on what the candidate does; nothing if they did not.

    Whoever asks again and again is right at last: by a coin that the candidate tosses, or by noise.
    Checks are the same candidate's; promotions are the contract's, as a copy with another comment
    is another candidate.
    """
    since = court.docket.seal_in_force().seq
    gates: Counter[str] = Counter()
    for attempt, entry in court.docket.attempts():
        ended = court.docket.outcome(attempt.job_id)
        is_same = attempt.candidate == subject.candidate or (
            (attempt.tool, attempt.contract) == ("promote", contract)
        )
        is_graded = is_same and attempt.purpose is Purpose.GRADED
        if is_graded and entry.seq > since and ended is not None:
            failures = [v for v in ended[0].verdicts if v.outcome is Outcome.FAIL]
            gates.update(v.gate for v in failures if v.gate in _ON_WHAT_IT_DOES)
    told = ", ".join(f"{gate} {times} times" for gate, times in sorted(gates.items()))
    return (
        f"; earlier graded checks of it or promotions of its contract failed: {told}"
        if told
        else ""
    )


def _what_to_approve(deciding: Verdict | None) -> str:
    if deciding is None or deciding.outcome is Outcome.PASS:
        return "every gate passed; the campaign asks a person before a promotion"
    return f"every other gate passed; {deciding.gate} asks a person: {deciding.reason}"


def _is_about(attempt: Attempt, subject: Subject) -> bool:
    asked = (attempt.tool, attempt.candidate, attempt.target)
    return asked == ("promote", subject.candidate, subject.target)


def _is_current(outcome: OutcomeOfJob) -> bool:
    """Whether the job ran to its end and the gates are still those that judged it."""
    judged_by: dict[str, Digest] = {v.gate: v.gate_digest for v in outcome.verdicts}
    return outcome.status is JobStatus.DONE and judged_by.items() <= current_digests().items()
