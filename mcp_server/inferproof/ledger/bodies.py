"""What a ledger entry may say: one closed model for each kind of body.

A body is written as plain JSON and read back as one of these; an unknown kind or key is refused
at the door, so nothing enters the chain that `verify` does not understand.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, cast

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError

from inferproof.core.candidate import RelativePath
from inferproof.core.canonical import Json, canonical_bytes
from inferproof.core.errors import LedgerError
from inferproof.core.values import (
    Digest,
    Entry,
    JobStatus,
    Name,
    NonNegative,
    Outcome,
    Purpose,
    Value,
    Verdict,
)

Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
UNSIGNED = "0" * 128
ApprovalId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
JobId = Annotated[str, Field(min_length=1, max_length=100)]


class Seal(Value):
    """What a person vouched for: the campaign's files and both public keys.

    `replaces` is the digest of the seal entry that this one amends, so that an older and laxer
    seal cannot be put in force again by appending it once more.
    """

    kind: Literal["seal"] = "seal"
    campaign: Name
    mode: Literal["passphrase", "demo"]
    files: dict[RelativePath, Digest]
    approver_public_key: Digest
    keeper_public_key: Digest
    replaces: Digest | None
    approver_signature: Signature


class CandidateStored(Value):
    """A snapshot was taken, before anything was drawn for it."""

    kind: Literal["candidate"] = "candidate"
    candidate: Digest
    files: dict[str, Digest]
    contract: str
    parent: Digest | None


class Attempt(Value):
    """A job was accepted. Written before the tool answers.

    `reserved_accelerator_s` is the most that its GPUs may be charged.
    """

    kind: Literal["attempt"] = "attempt"
    job_id: JobId
    tool: str
    purpose: Purpose
    candidate: Digest | None
    contract: str | None
    target: str
    request_key: str | None
    reserved_accelerator_s: NonNegative | None = None


class OutcomeOfJob(Value):
    """How a job ended. Exactly one for each attempt.

    `accelerator_s` is what its GPUs are charged, in place of what the attempt reserved.
    """

    kind: Literal["outcome"] = "outcome"
    job_id: JobId
    status: JobStatus
    evidence: Digest | None
    verdicts: tuple[Verdict, ...]
    overall: Outcome | None
    failure: str | None
    accelerator_s: NonNegative | None = None


class Arming(Value):
    """Whether a gate rejected every mutant of a contract on a target."""

    kind: Literal["arming"] = "arming"
    contract: str
    gate_digest: Digest
    target: str
    tools_digest: Digest
    evidence: Digest | None
    armed: bool
    survivors: tuple[str, ...]


class ApprovalRequest(Value):
    """A question to a person."""

    kind: Literal["approval_request"] = "approval_request"
    approval_id: ApprovalId
    action: str
    candidate: Digest
    target: str
    expires_at: AwareDatetime
    reason: str


class Approval(Value):
    """A person's yes to one request, signed with the approver key."""

    kind: Literal["approval"] = "approval"
    approval_id: ApprovalId
    action: str
    candidate: Digest
    target: str
    expires_at: AwareDatetime
    approver_signature: Signature


class ApprovalUsed(Value):
    """The one use of an approval."""

    kind: Literal["approval_used"] = "approval_used"
    approval_id: ApprovalId


class Promotion(Value):
    """A candidate became champion. `outcome_seq` is the entry that proves it."""

    kind: Literal["promotion"] = "promotion"
    candidate: Digest
    contract: str
    outcome_seq: Annotated[int, Field(ge=0)]
    approval_id: ApprovalId | None


class Note(Value):
    """A person's steering."""

    kind: Literal["note"] = "note"
    text: Annotated[str, Field(min_length=1, max_length=10_000)]
    author: Literal["person"]


class Repair(Value):
    """An uncommitted tail was cut off. Its bytes are the object `digest_of_torn_tail`."""

    kind: Literal["repair"] = "repair"
    torn_bytes: Annotated[int, Field(ge=1)]
    digest_of_torn_tail: Digest


Body = (
    Seal
    | CandidateStored
    | Attempt
    | OutcomeOfJob
    | Arming
    | ApprovalRequest
    | Approval
    | ApprovalUsed
    | Promotion
    | Note
    | Repair
)
_BODIES: TypeAdapter[Body] = TypeAdapter(Annotated[Body, Field(discriminator="kind")])


def parse_body(body: Mapping[str, object]) -> Body:
    """Return `body` as the model of its kind.

    Raises:
        LedgerError: no such kind, or a key that the kind does not have.
    """
    try:
        return _BODIES.validate_python(body)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "kind"
        raise LedgerError(
            f"{body.get('kind')!r} is not a ledger entry: {where}: {first['msg']}",
            hint="the forms of entries are in: inferproof docs formats",
        ) from exc


def kind_of(entry: Entry) -> str:
    """Return the kind that the entry claims."""
    return str(entry.body.get("kind"))


def json_body(entry: Entry) -> Mapping[str, Json]:
    """Return the entry's body, typed as the JSON it was read from."""
    return cast("Mapping[str, Json]", entry.body)


def dump(body: Body) -> dict[str, Json]:
    """Return the plain JSON of a body, ready to sign and append."""
    return body.model_dump(mode="json")


def without_signature(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the part of a seal or approval that the approver signs."""
    return {key: item for key, item in body.items() if key != "approver_signature"}


def sign_body(body: Seal | Approval, sign: Callable[[bytes], str]) -> dict[str, Json]:
    """Return the plain JSON of `body`, its signature made anew over all the rest."""
    plain = without_signature(dump(body))
    return {**plain, "approver_signature": sign(canonical_bytes(plain))}
