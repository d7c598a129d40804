"""One file per judge; GATES is the order.

All gates look at every case. Two things make a later gate say "not run" instead of judging:
evidence that is not about this candidate or not the candidate's doing (another digest, a missing
compiler, a failure of the bench), and a measurement that is missing because an earlier gate failed.

Taken together (`overall`): a fail decides, since no measurement undoes it; then an inconclusive,
since what is not proved cannot be approved away; then a wait for a person; else it passed.
Within each, the first in the order of GATES, which is the cause of those after it; a pass is
decided by the last gate, since all had to agree.
"""

from collections.abc import Iterator, Sequence

from inferproof.core.values import Digest, Outcome, Reason, Verdict
from inferproof.gates.armed import Armed
from inferproof.gates.audit import Audited
from inferproof.gates.bar import Bar
from inferproof.gates.base import Case, Gate, ServiceCase
from inferproof.gates.believability import Believable
from inferproof.gates.compiled import Compiled
from inferproof.gates.conduct import Conduct
from inferproof.gates.conformance import Conforms
from inferproof.gates.fidelity import FidelityGate
from inferproof.gates.fidelity_armed import FidelityArmed
from inferproof.gates.numerics import Numerics
from inferproof.gates.objectives import Objectives
from inferproof.gates.physics import Physics
from inferproof.gates.provenance import Provenance
from inferproof.gates.quality import QualityGate
from inferproof.gates.sampler import SamplerGate
from inferproof.gates.serving import Serving
from inferproof.gates.source import gate_digest
from inferproof.gates.speed import Speedup
from inferproof.gates.tasks import TasksDone

GATES: tuple[Gate[Case], ...] = (
    Compiled(),
    Provenance(),
    Armed(),
    Conduct(),
    Numerics(),
    Speedup(),
    Physics(),
)
COMPILE_GATES: tuple[Gate[Case], ...] = (Compiled(),)
FIDELITY_GATES: tuple[Gate[ServiceCase], ...] = (
    Serving(),
    Provenance(),
    FidelityArmed(),
    FidelityGate(),
    SamplerGate(),
)
STAGE_GATES: tuple[tuple[str, Gate[ServiceCase]], ...] = (
    ("conformance", Conforms()),
    ("tasks", TasksDone()),
)
LOAD_GATES: tuple[Gate[ServiceCase], ...] = (
    Believable(),
    Audited(),
    QualityGate(),
    Bar(),
    Objectives(),
)

WORST_FIRST = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.APPROVAL_REQUIRED, Outcome.PASS)
SAYS_NOTHING = frozenset({Reason.DIGEST_MISMATCH, Reason.COMPILER_MISSING, Reason.INFRASTRUCTURE})


def judge_all(case: Case | ServiceCase) -> tuple[Verdict, ...]:
    """Return the verdict of each gate that this kind of evidence needs; practice runs need none."""
    verdicts: list[Verdict] = []
    for found in _judge_each(case):
        verdicts.append(_unless_blocked(found, verdicts))
    return tuple(verdicts)


def _judge_each(case: Case | ServiceCase) -> Iterator[Verdict]:
    if isinstance(case, Case):
        gates = {"grade": GATES, "compile": COMPILE_GATES}.get(case.evidence.kind, ())
        yield from (gate.judge(case) for gate in gates)
        return
    if case.evidence.kind != "serve":
        return
    yield from (gate.judge(case) for gate in FIDELITY_GATES)
    serve = case.evidence.serve
    asked = serve.stages if serve is not None else ()
    yield from (gate.judge(case) for stage, gate in STAGE_GATES if stage in asked)
    if "load" in asked:
        yield from (gate.judge(case) for gate in LOAD_GATES)


def current_digests() -> dict[str, Digest]:
    """Return the digest that each present gate signs its verdicts with."""
    gates = (*GATES, *FIDELITY_GATES, *(gate for _, gate in STAGE_GATES), *LOAD_GATES)
    return {gate.name: gate_digest(type(gate).__module__) for gate in gates}


def overall(verdicts: Sequence[Verdict]) -> tuple[Outcome, Verdict]:
    """Return the outcome of all gates together and the verdict that decides it.

    Raises:
        ValueError: there is no verdict, so nothing was judged.
    """
    deciding = min(verdicts, key=lambda verdict: WORST_FIRST.index(verdict.outcome))
    if deciding.outcome is Outcome.PASS:
        deciding = verdicts[-1]
    return deciding.outcome, deciding


def _unless_blocked(verdict: Verdict, earlier: Sequence[Verdict]) -> Verdict:
    """Return `verdict`, or in its place that the gate could not run because of an earlier one."""
    for before in earlier:
        cut_off = before.outcome is Outcome.FAIL and verdict.code is Reason.NOT_MEASURED
        if cut_off or before.code in SAYS_NOTHING:
            return verdict.model_copy(
                update={
                    "outcome": Outcome.INCONCLUSIVE,
                    "code": Reason.NOT_MEASURED,
                    "reason": f"not run: {before.gate} says {before.code.value}",
                    "next_step": before.next_step,
                }
            )
    return verdict
