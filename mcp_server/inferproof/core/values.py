"""The nouns of inferproof as frozen values. JSON becomes these at the door and nowhere else."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
NonNegative = Annotated[float, Field(ge=0)]


class Value(BaseModel):
    """Base of every value: frozen, closed, finite numbers only."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Outcome(StrEnum):
    """What a gate says."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    APPROVAL_REQUIRED = "approval_required"


class Purpose(StrEnum):
    """Why a measurement was made; only graded evidence promotes."""

    PRACTICE = "practice"
    SCREEN = "screen"
    GRADED = "graded"


class Reason(StrEnum):
    """Stable code for why a verdict is what it is."""

    ACCEPTED = "accepted"
    # build
    COMPILE_FAILED = "compile_failed"
    COMPILER_MISSING = "compiler_missing"
    IMPORT_FAILED = "import_failed"
    # behaviour of the candidate's process
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    MEMORY_EXCEEDED = "memory_exceeded"
    DISK_EXCEEDED = "disk_exceeded"
    PROCESS_LIMIT = "process_limit"
    PROTOCOL_FORGED = "protocol_forged"
    RAN_WHILE_FROZEN = "ran_while_frozen"
    EARLY_START = "early_start"
    LATE_FINISH = "late_finish"
    # what it wrote
    OUTPUT_UNWRITTEN = "output_unwritten"
    GUARD_OVERWRITTEN = "guard_overwritten"
    INPUT_MUTATED = "input_mutated"
    STALE_OUTPUT = "stale_output"
    NAN_MISMATCH = "nan_mismatch"
    WRONG_VALUES = "wrong_values"
    PRECISION_LOST = "precision_lost"
    NOT_REPEATABLE = "not_repeatable"
    SANITIZER = "sanitizer"
    PRECISION_RAISED = "precision_raised"
    NOT_APPLICABLE = "not_applicable"
    # speed
    NOT_FASTER = "not_faster"
    BEYOND_PHYSICS = "beyond_physics"
    LARGE_CLAIM = "large_claim"
    BELOW_RESOLUTION = "below_resolution"
    # an engine
    NOT_SERVING = "not_serving"
    UNSUPERVISED = "unsupervised"
    UNFAITHFUL = "unfaithful"
    QUANTISATION_NOT_ALLOWED = "quantisation_not_allowed"
    SAMPLER_IGNORED = "sampler_ignored"
    QUALITY_WORSE = "quality_worse"
    OUTPUT_DIFFERS = "output_differs"
    WRONG_TOKENS = "wrong_tokens"
    LEAKS = "leaks"
    REQUESTS_FAILED = "requests_failed"
    RUN_INCOMPLETE = "run_incomplete"
    WRONG_LENGTH = "wrong_length"
    CHUNKED_STREAM = "chunked_stream"
    REPETITIVE = "repetitive"
    CLIENT_SATURATED = "client_saturated"
    AUDIT_FAILED = "audit_failed"
    GUARD_WORSE = "guard_worse"
    CORES_EXCEEDED = "cores_exceeded"
    FINAL_USED = "final_used"
    NONCONFORMING = "nonconforming"
    WORSE_ANSWERS = "worse_answers"
    MIXED_RESULT = "mixed_result"
    BAR_NOT_TUNED = "bar_not_tuned"
    # the judge itself
    NOT_MEASURED = "not_measured"
    NOT_ARMED = "not_armed"
    DIGEST_MISMATCH = "digest_mismatch"
    APPROVAL_NEEDED = "approval_needed"
    INFRASTRUCTURE = "infrastructure"


class Incident(Value):
    """Something the candidate did (or the bench saw) that decides without numbers."""

    code: Reason
    call: int | None
    detail: str


class Verdict(Value):
    """What one gate says about one piece of evidence."""

    gate: Name
    gate_digest: Digest
    outcome: Outcome
    code: Reason
    reason: str
    next_step: str = ""


class JobStatus(StrEnum):
    """Where a job stands; every state but the first two is final.

    `infra`: the machine failed before or under the job; `lost`: nobody knows what became of it.
    """

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    INFRA = "infra"

    @property
    def is_final(self) -> bool:
        """Whether the job can no longer change."""
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING)


class Entry(Value):
    """One line of the ledger.

    `digest` is SHA-256 over the canonical JSON of {seq, prev, at, body}; `sig` is the keeper's
    ed25519 signature over the 32 digest bytes. `prev` of entry 0 is 64 zeros.
    """

    seq: Annotated[int, Field(ge=0)]
    prev: Digest
    at: AwareDatetime
    body: dict[str, object]
    digest: Digest
    sig: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


def utc_now() -> datetime:
    """Return the present time in UTC; the only clock that dates entries."""
    return datetime.now(UTC)
