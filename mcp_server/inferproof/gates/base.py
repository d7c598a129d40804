"""What a gate is: a name and a pure function of one case."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeGuard, TypeVar

from inferproof.core.contract import KernelContract
from inferproof.core.evidence import Evidence, GradeFacts
from inferproof.core.service import ServiceContract
from inferproof.core.serving_facts import ServeFacts
from inferproof.core.values import Digest, Incident, Outcome, Purpose, Reason, Value, Verdict
from inferproof.gates.source import gate_digest

AGAIN = "Measure again; if this repeats, run: inferproof doctor"


class Case(Value):
    """All that a gate may look at: the sealed rule, the committed names, what was measured.

    `arming` is the earlier grade in which the contract's mutants ran, when this one has none.
    `candidate` and `contract_digest` are what the ledger says was to be judged; `accelerator` is
    the only one whose graded evidence counts, if the campaign names one.
    """

    contract: KernelContract
    contract_digest: Digest
    candidate: Digest
    speedup_at_least: float
    evidence: Evidence
    arming: GradeFacts | None = None
    accelerator: str | None = None

    @property
    def shows_numbers(self) -> bool:
        """Whether a reason may carry figures: practice explains, grading only decides."""
        return self.evidence.purpose is Purpose.PRACTICE


class ServiceCase(Value):
    """A case about an engine: the sealed rule, the committed names, what was measured.

    `arming` is the earlier measurement in which the contract's mutants ran, when this has none.
    """

    contract: ServiceContract
    contract_digest: Digest
    candidate: Digest
    speedup_at_least: float
    evidence: Evidence
    arming: ServeFacts | None = None

    @property
    def shows_numbers(self) -> bool:
        """Whether a reason may carry figures: grading says only where and by which rule."""
        return self.evidence.purpose is not Purpose.GRADED


CaseT = TypeVar("CaseT", contravariant=True)


class Gate(Protocol[CaseT]):
    """One judge. Judging the same case twice gives the same verdict."""

    @property
    def name(self) -> str:
        """The gate's name in verdicts."""
        ...

    def judge(self, case: CaseT) -> Verdict:
        """Return what this gate says about `case`."""
        ...


@dataclass(frozen=True, slots=True)
class Clerk:
    """Writes the verdicts of one gate, signed with the digest of its source."""

    gate: str
    module: str

    def passes(self, reason: str) -> Verdict:
        """Return a pass."""
        return self._verdict(Outcome.PASS, Reason.ACCEPTED, reason, "")

    def fails(self, code: Reason, reason: str, next_step: str) -> Verdict:
        """Return a fail: the candidate is to blame."""
        return self._verdict(Outcome.FAIL, code, reason, next_step)

    def doubts(self, code: Reason, reason: str, next_step: str = AGAIN) -> Verdict:
        """Return an inconclusive verdict: nothing is proved either way."""
        return self._verdict(Outcome.INCONCLUSIVE, code, reason, next_step)

    def asks(self, code: Reason, reason: str, next_step: str) -> Verdict:
        """Return a verdict that waits for a person."""
        return self._verdict(Outcome.APPROVAL_REQUIRED, code, reason, next_step)

    def unmeasured(self, what: str) -> Verdict:
        """Return the verdict on evidence that lacks `what`."""
        return self.doubts(Reason.NOT_MEASURED, f"not measured: {what}")

    def _verdict(self, outcome: Outcome, code: Reason, reason: str, next_step: str) -> Verdict:
        return Verdict(
            gate=self.gate,
            gate_digest=gate_digest(self.module),
            outcome=outcome,
            code=code,
            reason=reason,
            next_step=next_step,
        )


def measured(value: float | None) -> TypeGuard[float]:
    """Return whether `value` is a number that can be compared."""
    return value is not None and math.isfinite(value)


def earlier_tries(evidence: Evidence) -> int:
    """Return how often the contract's speed was asked for before; what is practice is no try."""
    earlier = evidence.earlier
    return earlier.graded if earlier and evidence.purpose is Purpose.GRADED else 0


def bench_words(incident: Incident) -> str:
    """Return what the bench says of an incident.

    What a candidate says on its way out is its own word: to be read in the evidence, never here.
    """
    return incident.detail.partition(", saying: ")[0]


def shape_text(dims: Mapping[str, int]) -> str:
    """Return dims as a reader writes them: `tokens=128, hidden=4096`."""
    return ", ".join(f"{name}={extent}" for name, extent in dims.items())
