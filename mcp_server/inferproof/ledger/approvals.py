"""A person's yes: asked for, signed with the approver key, valid for one use.

The approval's id is derived from the request and from the head of the chain that it was asked on,
so a signature is worth nothing in another ledger, for another candidate, or a second time.
"""

from collections.abc import Iterable
from datetime import datetime

from inferproof.core.canonical import Json, digest_json
from inferproof.core.errors import ApprovalRefused
from inferproof.core.values import Digest, Entry, Value
from inferproof.ledger.bodies import (
    UNSIGNED,
    Approval,
    ApprovalRequest,
    ApprovalUsed,
    Promotion,
    dump,
    json_body,
    parse_body,
    sign_body,
    without_signature,
)
from inferproof.ledger.seals import current_seal
from inferproof.ledger.signing import ApproverKey, is_signed_json
from inferproof.ledger.store import Ledger

KINDS = ("approval_request", "approval", "approval_used", "promotion")


class Subject(Value):
    """What is approved: one action with one candidate on one target."""

    action: str
    candidate: Digest
    target: str


class Decision(Value):
    """Whether an action may go ahead: under which approval, or why not."""

    approval_id: str | None
    reason: str


class ApprovalBook:
    """What the ledger says about approvals so far. Takes entries in, decides, writes nothing."""

    def __init__(self, approver_public_key: str) -> None:
        self._approver_public_key = approver_public_key
        self.requests: dict[str, ApprovalRequest] = {}
        self.approvals: dict[str, Approval] = {}
        self.used: dict[str, int] = {}
        self._unfinished: dict[str, Subject] = {}

    @classmethod
    def read(cls, entries: Iterable[Entry], approver_public_key: str) -> "ApprovalBook":
        """Return the book after `entries`; what is wrong among them counts for nothing."""
        book = cls(approver_public_key)
        for entry in entries:
            book.see(entry)
        return book

    def see(self, entry: Entry) -> str:
        """Take in one entry and return what is wrong with it, or nothing."""
        match parse_body(entry.body):
            case ApprovalRequest() as request:
                return self._see_request(request, entry)
            case Approval() as approval:
                return self._see_approval(approval, entry)
            case ApprovalUsed() as used:
                return self._see_use(used, entry)
            case Promotion(approval_id=str(approval_id)):
                self._unfinished.pop(approval_id, None)
                return ""
            case _:
                return ""

    def decide(self, subject: Subject, *, now: datetime) -> Decision:
        """Return the approval under which `subject` may go ahead now."""
        about = [a for a in self.approvals.values() if _subject(a) == subject]
        reasons = [(approval, self._why_not(approval, now)) for approval in about]
        for approval, reason in reasons:
            if not reason:
                return Decision(approval_id=approval.approval_id, reason="approved")
        reason = (
            reasons[-1][1] if reasons else f"nobody approved {subject.action} of this candidate"
        )
        return Decision(approval_id=None, reason=reason)

    def covers(self, approval_id: str, subject: Subject) -> bool:
        """Return whether the approval of that id is about `subject`."""
        approval = self.approvals.get(approval_id)
        return approval is not None and _subject(approval) == subject

    def unfinished(self, subject: Subject) -> str | None:
        """Return the used approval of a promotion that is not on record: its writer died."""
        return next((key for key, about in self._unfinished.items() if about == subject), None)

    def open_request(self, subject: Subject, *, now: datetime) -> ApprovalRequest | None:
        """Return the request about `subject` that still can be answered or used."""
        for request in self.requests.values():
            unspent = request.approval_id not in self.used
            if _subject(request) == subject and unspent and now < request.expires_at:
                return request
        return None

    def _why_not(self, approval: Approval | ApprovalRequest, now: datetime) -> str:
        if approval.approval_id in self.used:
            return f"approval {approval.approval_id} was used already"
        if now >= approval.expires_at:
            return f"approval {approval.approval_id} expired at {approval.expires_at.isoformat()}"
        return ""

    def _see_request(self, request: ApprovalRequest, entry: Entry) -> str:
        if request.approval_id != _approval_id(_subject(request), request.expires_at, entry.prev):
            return "its id does not belong to this place in the chain"
        self.requests[request.approval_id] = request
        return ""

    def _see_approval(self, approval: Approval, entry: Entry) -> str:
        request = self.requests.get(approval.approval_id)
        if request is None:
            return "approves what was not asked for in this ledger"
        asked = (_subject(request), request.expires_at)
        if (_subject(approval), approval.expires_at) != asked:
            return "approves something else than was asked for"
        unsigned = without_signature(json_body(entry))
        if not is_signed_json(
            unsigned, approval.approver_signature, public_key=self._approver_public_key
        ):
            return "not signed by the campaign's approver key"
        self.approvals[approval.approval_id] = approval
        return ""

    def _see_use(self, used: ApprovalUsed, entry: Entry) -> str:
        approval = self.approvals.get(used.approval_id)
        if approval is None:
            return "uses an approval that nobody gave"
        problem = self._why_not(approval, entry.at)
        self.used.setdefault(used.approval_id, entry.seq)
        if approval.action == "promote" and not problem:
            self._unfinished[used.approval_id] = _subject(approval)
        return problem


def request(
    ledger: Ledger, subject: Subject, *, expires_at: datetime, reason: str, now: datetime
) -> ApprovalRequest:
    """Return the request that a person is to answer: the open one, else a new one."""
    found: list[ApprovalRequest] = []

    def body(locked: Ledger) -> dict[str, Json] | None:
        already = _book(locked).open_request(subject, now=now)
        if already:
            found.append(already)
            return None
        asked = ApprovalRequest(
            approval_id=_approval_id(subject, expires_at, locked.head),
            expires_at=expires_at,
            reason=reason,
            **subject.model_dump(),
        )
        found.append(asked)
        return dump(asked)

    ledger.append_if(body)
    return found[0]


def find_request(ledger: Ledger, approval_id: str, *, now: datetime) -> ApprovalRequest:
    """Return the request that a person is about to answer.

    Raises:
        ApprovalRefused: there is none of that id, it expired, or it was answered already.
    """
    book = _book(ledger)
    asked = book.requests.get(approval_id)
    if asked is None:
        waiting = ", ".join(key for key in book.requests if key not in book.approvals)
        raise ApprovalRefused(
            f"nothing asks for approval {approval_id}", hint=f"waiting: {waiting or 'nothing'}"
        )
    if asked.expires_at <= now:
        raise ApprovalRefused(
            f"request {approval_id} expired at {asked.expires_at.isoformat()}",
            hint="promote again; it asks anew",
        )
    if approval_id in book.approvals:
        raise ApprovalRefused(f"request {approval_id} is approved already")
    return asked


def approve(ledger: Ledger, asked: ApprovalRequest, key: ApproverKey) -> Entry:
    """Append the approval of `asked`, signed by `key`.

    Raises:
        ApprovalRefused: `key` is not the key that sealed the campaign.
    """
    if key.public_key != current_seal(ledger.entries("seal")).approver_public_key:
        raise ApprovalRefused(
            "this is not the key that sealed the campaign", hint="approve with that key"
        )
    plain = asked.model_dump(exclude={"kind", "reason"})
    return ledger.append(sign_body(Approval(**plain, approver_signature=UNSIGNED), key.sign))


def find_valid(ledger: Ledger, subject: Subject, *, now: datetime) -> Decision:
    """Return whether `subject` may go ahead now, without using the approval up."""
    return _book(ledger).decide(subject, now=now)


def find_unfinished(ledger: Ledger, subject: Subject) -> str | None:
    """Return the approval that was used for `subject` by a server that died before it promoted.

    It is still good, for that same promotion and for nothing else.
    """
    return _book(ledger).unfinished(subject)


def use(ledger: Ledger, subject: Subject, *, now: datetime) -> Entry:
    """Use up the valid approval of `subject`, once, whoever else tries at the same time.

    Raises:
        ApprovalRefused: there is none, or it expired or was used.
    """

    def body(locked: Ledger) -> dict[str, Json]:
        decision = _book(locked).decide(subject, now=now)
        if decision.approval_id is None:
            raise ApprovalRefused(decision.reason, hint="promote again; it asks a person anew")
        return dump(ApprovalUsed(approval_id=decision.approval_id))

    return ledger.append_from(body)


def _book(ledger: Ledger) -> ApprovalBook:
    seal = current_seal(ledger.entries("seal"))
    return ApprovalBook.read(ledger.entries(KINDS), seal.approver_public_key)


def _subject(body: ApprovalRequest | Approval) -> Subject:
    return Subject(action=body.action, candidate=body.candidate, target=body.target)


def _approval_id(subject: Subject, expires_at: datetime, head: Digest) -> str:
    asked = {**subject.model_dump(), "expires_at": expires_at.timestamp(), "head": head}
    return digest_json(asked)[:32]
