"""Does each entry say the truth? Objects, jobs, verdicts, approvals and promotions, in order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pydantic import ValidationError

from inferproof.core.errors import InferproofError, LedgerError
from inferproof.core.evidence import BuildFacts, Evidence
from inferproof.core.values import Digest, Entry, JobStatus, Outcome, Purpose, Verdict
from inferproof.ledger.approvals import ApprovalBook, Subject
from inferproof.ledger.bodies import (
    Arming,
    Attempt,
    CandidateStored,
    OutcomeOfJob,
    Promotion,
    Repair,
    kind_of,
    parse_body,
)
from inferproof.ledger.chain import GENESIS, Finding, altered, notice, older_gate
from inferproof.ledger.objects import ObjectStore, hash_file

Judge: TypeAlias = Callable[[Digest, Evidence], Sequence[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the entries are checked against."""

    objects: ObjectStore
    candidates: Path
    judge: Judge
    approver_public_key: str
    approval_required: bool


class Audit:
    """Follows a chain entry by entry; remembers what later entries rest on."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._approvals = ApprovalBook(sources.approver_public_key)
        self._seal: Digest | None = None
        self._attempts: dict[str, Attempt] = {}
        self._sealed_under: dict[str, Digest | None] = {}
        self._outcomes: dict[str, int] = {}
        self._provers: dict[int, tuple[Attempt, OutcomeOfJob]] = {}
        self._spent: dict[str, int] = {}
        self._whole: set[Digest] = set()

    def see(self, entry: Entry) -> list[Finding]:
        """Take in the next entry and return what is wrong with it."""
        findings: list[Finding] = []
        if kind_of(entry) == "seal":
            self._seal = entry.digest
        try:
            findings.extend(self._check(entry))
        except LedgerError as exc:
            findings.append(altered(entry, exc.what))
        return findings

    def _check(self, entry: Entry) -> Iterator[Finding]:
        match parse_body(entry.body):
            case CandidateStored() as body:
                yield from self._check_candidate(entry, body)
            case Attempt() as body:
                yield from self._check_attempt(entry, body)
            case OutcomeOfJob() as body:
                yield from self._check_outcome(entry, body)
            case Arming() as body:
                yield from self._check_arming(entry, body)
            case Promotion() as body:
                yield from self._check_promotion(entry, body)
            case Repair() as body:
                self._check_object(body.digest_of_torn_tail)
                yield notice(entry, f"a torn tail of {body.torn_bytes} bytes was cut off here")
            case _:
                problem = self._approvals.see(entry)
                if problem:
                    yield altered(entry, problem)

    def _check_attempt(self, entry: Entry, body: Attempt) -> Iterator[Finding]:
        if self._attempts.setdefault(body.job_id, body) is not body:
            yield altered(entry, f"second attempt of job {body.job_id}")
        self._sealed_under.setdefault(body.job_id, self._seal)

    def _check_candidate(self, entry: Entry, body: CandidateStored) -> Iterator[Finding]:
        folder = self._sources.candidates / body.candidate
        if not folder.is_dir():
            yield notice(entry, f"the snapshot {body.candidate} is not on this machine")
            return
        for relative, digest in body.files.items():
            if hash_file(folder / relative) != digest:
                yield altered(entry, f"{relative} in snapshot {body.candidate} was changed")

    def _check_arming(self, entry: Entry, body: Arming) -> Iterator[Finding]:
        if body.evidence is not None:
            self._check_object(body.evidence)
        if body.armed and (body.survivors or body.evidence is None):
            yield altered(entry, "says armed, but mutants survived or nothing was measured")

    def _check_outcome(self, entry: Entry, body: OutcomeOfJob) -> Iterator[Finding]:
        first = self._outcomes.setdefault(body.job_id, entry.seq)
        if first != entry.seq:
            yield altered(entry, f"second outcome of job {body.job_id}: the first is entry {first}")
        attempt = self._attempts.get(body.job_id)
        if attempt is None:
            yield altered(entry, f"ends job {body.job_id}, which was never attempted")
            return
        self._provers[entry.seq] = (attempt, body)
        if body.overall is Outcome.PASS:
            yield from _check_pass(entry, body)
        if body.evidence is not None:
            evidence = self._load_evidence(body.evidence)
            yield from _check_subject(entry, attempt, evidence)
            if evidence.seal not in (None, self._sealed_under[body.job_id]):
                yield altered(entry, "its evidence was judged under a seal not in force then")
            yield from self._judge_again(entry, body, evidence)

    def _load_evidence(self, digest: Digest) -> Evidence:
        try:
            evidence = Evidence.model_validate_json(self._sources.objects.get(digest))
        except ValidationError as exc:
            raise LedgerError(f"object {digest} is not evidence") from exc
        for artefact in _artefacts(evidence):
            self._check_object(artefact)
        return evidence

    def _check_object(self, digest: Digest) -> None:
        if digest not in self._whole:
            self._sources.objects.check(digest)
            self._whole.add(digest)

    def _judge_again(
        self, entry: Entry, body: OutcomeOfJob, evidence: Evidence
    ) -> Iterator[Finding]:
        if not body.verdicts:
            return
        try:
            present = self._present_verdicts(evidence)
        except InferproofError as exc:
            grade = altered if body.overall is Outcome.PASS else notice
            yield grade(entry, f"its verdicts cannot be judged again: {exc.what}")
            return
        yield from _compare(entry, body.verdicts, present)

    def _present_verdicts(self, evidence: Evidence) -> Sequence[Verdict]:
        if evidence.contract is None:
            raise LedgerError("the evidence names no contract")
        return self._sources.judge(evidence.contract, evidence)

    def _check_promotion(self, entry: Entry, body: Promotion) -> Iterator[Finding]:
        prover = self._provers.get(body.outcome_seq)
        if prover is None:
            yield altered(entry, f"entry {body.outcome_seq} is no outcome of a job")
            return
        attempt, outcome = prover
        yield from _check_proof(entry, body, attempt, outcome)
        must = self._sources.approval_required or outcome.overall is Outcome.APPROVAL_REQUIRED
        if must or body.approval_id is not None:
            subject = Subject(action="promote", candidate=body.candidate, target=attempt.target)
            yield from self._check_approval(entry, body.approval_id, subject)

    def _check_approval(
        self, entry: Entry, approval_id: str | None, subject: Subject
    ) -> Iterator[Finding]:
        if approval_id is None or approval_id not in self._approvals.used:
            yield altered(entry, "promotes without an approval that was given and used")
            return
        if not self._approvals.covers(approval_id, subject):
            yield altered(entry, f"approval {approval_id} is for something else")
        first = self._spent.setdefault(approval_id, entry.seq)
        if first != entry.seq:
            yield altered(entry, f"approval {approval_id} was spent by entry {first}")


def _check_proof(
    entry: Entry, body: Promotion, attempt: Attempt, outcome: OutcomeOfJob
) -> Iterator[Finding]:
    if attempt.candidate != body.candidate:
        yield altered(entry, f"entry {body.outcome_seq} is about another candidate")
    if _differ(attempt.contract, body.contract):
        yield altered(entry, f"entry {body.outcome_seq} is about another contract")
    if attempt.purpose is not Purpose.GRADED or not outcome.verdicts:
        yield altered(entry, f"entry {body.outcome_seq} was not graded")
    if outcome.overall not in (Outcome.PASS, Outcome.APPROVAL_REQUIRED):
        yield altered(entry, f"entry {body.outcome_seq} says {outcome.overall}, not pass")


def _check_pass(entry: Entry, body: OutcomeOfJob) -> Iterator[Finding]:
    if body.evidence is None or body.status is not JobStatus.DONE:
        yield altered(entry, "says pass, but nothing was measured")
    for verdict in body.verdicts:
        if verdict.outcome is not Outcome.PASS:
            yield altered(entry, f"says pass, but {verdict.gate} said {verdict.outcome}")


def _check_subject(entry: Entry, attempt: Attempt, evidence: Evidence) -> Iterator[Finding]:
    """Evidence of one job, candidate, contract or target proves nothing about another."""
    pairs = {
        "job": (evidence.job_id, attempt.job_id),
        "candidate": (evidence.candidate, attempt.candidate),
        "purpose": (evidence.purpose, attempt.purpose),
        "target": (evidence.target, attempt.target),
    }
    for what, (measured, asked) in pairs.items():
        if measured != asked:
            yield altered(entry, f"its evidence is of another {what}: {measured}, not {asked}")
    if _differ(evidence.contract, attempt.contract):
        yield altered(entry, "its evidence is of another contract")


def _compare(
    entry: Entry, recorded: Sequence[Verdict], present: Sequence[Verdict]
) -> Iterator[Finding]:
    now = {verdict.gate: verdict for verdict in present}
    for verdict in recorded:
        again = now.pop(verdict.gate, None)
        if again is None or again.gate_digest != verdict.gate_digest:
            says = f"; the present gate says {again.outcome}" if again else ""
            yield older_gate(entry, f"{verdict.gate}: judged by an older gate{says}")
        elif again != verdict:
            what = f"{verdict.gate} says {again.outcome} ({again.code}) on the stored evidence"
            yield altered(entry, f"{what}, the entry {verdict.outcome} ({verdict.code})")
    for gate in now:
        yield older_gate(entry, f"{gate}: has not judged this evidence")


def _artefacts(evidence: Evidence) -> Iterator[Digest]:
    builds: list[BuildFacts] = [evidence.build] if evidence.build else []
    if evidence.grade:
        builds.append(evidence.grade.build)
    yield from evidence.artefacts.values()
    if evidence.arming is not None:
        yield evidence.arming
    for build in builds:
        yield from build.artefacts.values()


def _differ(left: str | None, right: str | None) -> bool:
    """Return whether two contract references differ; a name and a digest cannot be compared."""
    if left is None or right is None or _is_digest(left) != _is_digest(right):
        return False
    return left != right


def _is_digest(reference: str) -> bool:
    return len(reference) == len(GENESIS)
