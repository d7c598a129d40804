"""A small sealed campaign with one promoted candidate, and a judge that is easy to predict."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from inferproof.core.canonical import Json, canonical_bytes, digest_bytes
from inferproof.core.evidence import Evidence, RunFacts
from inferproof.core.values import Entry, JobStatus, Outcome, Purpose, Reason, Verdict
from inferproof.ledger import approvals
from inferproof.ledger.approvals import Subject
from inferproof.ledger.objects import hash_file
from inferproof.ledger.seals import seal_campaign
from inferproof.ledger.signing import ApproverKey
from inferproof.ledger.store import Ledger
from inferproof.ledger.verify import Report, verify

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CANDIDATE = digest_bytes(b"candidate")
OTHER_CANDIDATE = digest_bytes(b"other candidate")
CONTRACT = digest_bytes(b"contract")
GATE = digest_bytes(b"gate source")
SUBJECT = Subject(action="promote", candidate=CANDIDATE, target="local")
SEALED = ("campaign.yaml", "contracts/kernels/k/contract.yaml", "contracts/kernels/k/reference.py")


class Clock:
    """Advances one second each time somebody looks."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def judge(contract: str, evidence: Evidence) -> Sequence[Verdict]:
    """Pass what ended with 0."""
    passed = evidence.run is not None and evidence.run.rc == 0 and contract == CONTRACT
    return [
        Verdict(
            gate="exit",
            gate_digest=GATE,
            outcome=Outcome.PASS if passed else Outcome.FAIL,
            code=Reason.ACCEPTED if passed else Reason.WRONG_VALUES,
            reason="ended with 0" if passed else "ended otherwise",
        )
    ]


def evidence_of(job_id: str, *, rc: int = 0, candidate: str = CANDIDATE) -> Evidence:
    return Evidence(
        kind="run",
        job_id=job_id,
        status=JobStatus.DONE,
        purpose=Purpose.GRADED,
        target="local",
        candidate=candidate,
        contract=CONTRACT,
        started_at=NOW,
        ended_at=NOW,
        command=("true",),
        remote_digest=digest_bytes(b"remote"),
        run=RunFacts(argv=("true",), rc=rc, seconds=1.0, output_tail="", output_bytes=0),
    )


def evidence_bytes(evidence: Evidence) -> bytes:
    return canonical_bytes(evidence.model_dump(mode="json"))


def attempt_body(job_id: str, candidate: str = CANDIDATE) -> dict[str, Json]:
    return {
        "kind": "attempt",
        "job_id": job_id,
        "tool": "check_numerics",
        "purpose": "graded",
        "candidate": candidate,
        "contract": CONTRACT,
        "target": "local",
        "request_key": None,
    }


def outcome_body(
    job_id: str, evidence: str | None, verdicts: Sequence[Verdict] = (), overall: str | None = None
) -> dict[str, Json]:
    return {
        "kind": "outcome",
        "job_id": job_id,
        "status": "done",
        "evidence": evidence,
        "verdicts": [verdict.model_dump(mode="json") for verdict in verdicts],
        "overall": overall,
        "failure": "",
    }


def note(text: str) -> dict[str, Json]:
    return {"kind": "note", "text": text, "author": "person"}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One campaign folder, what wrote it, and the head that somebody else holds."""

    folder: Path
    ledger: Ledger
    approver: ApproverKey
    clock: Clock

    @property
    def state_dir(self) -> Path:
        return self.ledger.state_dir

    def verify(self, expected_head: str | None = None) -> Report:
        return verify(self.state_dir, self.folder, judge=judge, expected_head=expected_head)

    def run_job(self, job_id: str, *, rc: int = 0, candidate: str = CANDIDATE) -> Entry:
        evidence = evidence_of(job_id, rc=rc, candidate=candidate)
        verdicts = judge(CONTRACT, evidence)
        stored = self.ledger.objects.put_bytes(evidence_bytes(evidence))
        self.ledger.append(attempt_body(job_id, candidate))
        body = outcome_body(job_id, stored, verdicts, verdicts[0].outcome.value)
        return self.ledger.append_outcome_once(job_id, body)

    def ask(self, subject: Subject = SUBJECT) -> str:
        asked = approvals.request(
            self.ledger,
            subject,
            expires_at=NOW + timedelta(hours=1),
            reason="every gate passed",
            now=self.clock.now,
        )
        return asked.approval_id

    def approve(self, approval_id: str) -> Entry:
        asked = approvals.find_request(self.ledger, approval_id, now=self.clock.now)
        return approvals.approve(self.ledger, asked, self.approver)

    def promote(self, outcome: Entry, approval_id: str, candidate: str = CANDIDATE) -> Entry:
        return self.ledger.append(
            {
                "kind": "promotion",
                "candidate": candidate,
                "contract": "k",
                "outcome_seq": outcome.seq,
                "approval_id": approval_id,
            }
        )

    def seal(self, key: ApproverKey | None = None) -> Entry:
        return seal_campaign(
            self.ledger,
            key or self.approver,
            campaign="c",
            mode="passphrase",
            files={name: hash_file(self.folder / name) for name in SEALED},
        )


def make_world(folder: Path, approver: ApproverKey) -> World:
    """Return an unsealed campaign with files and keys."""
    (folder / ".inferproof").mkdir(parents=True)
    for name in SEALED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"content of {name}\n")
    clock = Clock()
    ledger = Ledger.open(folder / ".inferproof", clock=clock)
    return World(folder=folder, ledger=ledger, approver=approver, clock=clock)
