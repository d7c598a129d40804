"""One grading: every planned call in order, checked against the oracle, then the facts.

The candidate must be right in every call of the plan's first part before anything is timed; in the
second part timed and untimed calls come mixed, and what is timed is checked too.
"""

import time
from dataclasses import asdict, dataclass
from typing import TypeAlias

import torch

from inferproof_remote import job
from inferproof_remote.arms import Arms, Given
from inferproof_remote.call_facts import CallRecord
from inferproof_remote.ceilings import measure_ceilings
from inferproof_remote.draws import CANDIDATE, NULL, Plan, PlannedCall, Scope, make_plan
from inferproof_remote.expressions import evaluate
from inferproof_remote.facts import bench, caches_bytes
from inferproof_remote.grade import Begun, Order
from inferproof_remote.incidents import Incident
from inferproof_remote.inputs import InputMaker, Tensors
from inferproof_remote.mutants import mutant_facts
from inferproof_remote.numerics import count_unwritten, tensor_of
from inferproof_remote.oracle import Errors, History, Oracle
from inferproof_remote.repeats import Repeats
from inferproof_remote.session import CallResult

Json: TypeAlias = dict[str, object]
_PROGRESS_S = 0.5
_NOT_MEASURED: Json = {
    "memory_bytes_per_s": None,
    "cache_bytes_per_s": None,
    "flops_per_s": None,
    "last_level_cache_bytes": None,
}


def run(order: Order, begun: Begun) -> Json:
    """Return all that is measured of the candidate, in the form of the evidence."""
    torch.set_num_threads(order.threads)
    maker = InputMaker(begun.bits, order.kernel)
    usable = not begun.strangers
    oracle = Oracle(order.kernel, order.contract) if usable else None
    mutants = mutant_facts(begun.bits, oracle, maker) if oracle and order.arm else None
    facts = empty_facts(order, begun) | {"mutants": mutants}
    if oracle is None or not begun.build["ok"]:
        return facts
    plan = make_plan(begun.bits, order.kernel, _scope(order))
    with Arms(order, begun.bits, plan) as arms:
        grading = Grading(order, begun.bits, plan, arms=arms, oracle=oracle, maker=maker)
        grading.go()
    ceilings = measure_ceilings(caches_bytes()) if grading.timed_any else _NOT_MEASURED
    return facts | grading.facts() | {"ceilings": ceilings}


def _scope(order: Order) -> Scope:
    return Scope(
        graded=order.graded,
        zoo=order.zoo,
        timing=order.timing,
        baselines=order.kernel.baselines,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """One call of the candidate: its time, its outputs as tensors, whether all is well."""

    result: CallResult
    outputs: Tensors
    errors: Errors | None
    fine: bool


class Grading:
    """Carries out one plan; what it has seen so far is its state."""

    def __init__(
        self,
        order: Order,
        bits: bytes,
        plan: Plan,
        *,
        arms: Arms,
        oracle: Oracle,
        maker: InputMaker,
    ) -> None:
        self._order = order
        self._plan = plan
        self._arms = arms
        self._oracle = oracle
        self._maker = maker
        self._history = History(bits)
        self._repeats = Repeats(plan)
        self._records: list[CallRecord] = []
        self._incidents: list[Incident] = []
        self._pairs: dict[int, list[Json]] = {}
        self._absent: dict[str, str] = {}
        self._told_at = 0.0
        self._decoys: dict[tuple[int, ...], Tensors] = {}
        self._launch = 0
        self._met: set[tuple[int, ...]] = set()

    @property
    def timed_any(self) -> bool:
        """Whether there is a time to hold against the machine's ceilings."""
        return bool(self._pairs)

    def go(self) -> None:
        """Make every call of the plan, or as many as are worth making."""
        self._arms.start_candidate()
        for call in self._plan.calls:
            if call.index == self._plan.settled:
                if not self._repeats.all_fine:
                    return
                if self._plan.timed:
                    self._absent = self._arms.start_rivals(self._maker)
            if call.launch != self._launch:
                self._restart(call.launch)
            self._tell(call)
            self._make(call)
            if self._incidents:
                return

    def _restart(self, launch: int) -> None:
        self._launch = launch
        self._met = set()
        self._arms.restart_candidate(launch)

    def facts(self) -> Json:
        """Return what was seen, in the form of the evidence."""
        return {
            "incidents": [asdict(incident) for incident in self._all_incidents()],
            "calls": [record.to_json() for record in self._records],
            "timed": [self._workload(number) for number in sorted(self._pairs)],
            "absent_baselines": self._absent,
        }

    def _make(self, call: PlannedCall) -> None:
        given = Given(dims=call.dims, inputs=self._inputs(call), decoys=self._decoys_for(call))
        seconds: dict[str, float | None] = {}
        for arm in call.arms:
            if arm == CANDIDATE:
                answer = self._ask(call, given)
                seconds[arm] = answer.result.seconds
                if answer.result.incidents:
                    return
            elif arm in self._arms:
                seconds[arm] = self._arms.call(arm, given).seconds
        if call.workload is not None:
            self._note_pair(call.workload, seconds)

    def _ask(self, call: PlannedCall, given: Given) -> _Answer:
        """Call the candidate, judge what it wrote, and remember both."""
        shape = tuple(call.dims.values())
        result = self._arms.call(CANDIDATE, given, first=shape not in self._met)
        self._met.add(shape)
        self._incidents += result.incidents
        answer = self._judge(call, given, result)
        self._records.append(
            CallRecord(
                index=call.index,
                phase=call.phase,
                dims=call.dims,
                family=call.family,
                seconds=result.seconds,
                outputs=answer.errors,
                same_bits=self._repeats.note(call, answer.outputs, fine=answer.fine),
                launch=call.launch,
            )
        )
        return answer

    def _judge(self, call: PlannedCall, given: Given, result: CallResult) -> _Answer:
        if result.seconds is None:
            return _Answer(result=result, outputs={}, errors=None, fine=False)
        outputs = {
            tensor.name: tensor_of(
                result.outputs[tensor.name], tensor.dtype, tensor.extents(call.dims)
            )
            for tensor in self._order.kernel.results
        }
        # At a known address a remembered answer would do: there nothing goes unchecked.
        must = call.checked or result.revisited
        if not must and not any(map(count_unwritten, outputs.values())):
            return _Answer(result=result, outputs=outputs, errors=None, fine=True)
        question = self._oracle.ask(given.inputs, call.dims)
        bars = self._oracle.bars
        errors = question.judge(outputs, bars, poisoned=True)
        errors = self._history.explain(outputs, question, errors, bars)
        self._history.add(call.index, question.yardstick, whole=self._repeats.has_later(call))
        fine = all(error.within(bars) for error in errors.values())
        return _Answer(result=result, outputs=outputs, errors=errors, fine=fine)

    def _all_incidents(self) -> list[Incident]:
        return self._incidents + self._repeats.incidents(self._records)

    def _inputs(self, call: PlannedCall) -> Tensors:
        if call.phase != "near_duplicate" or call.base is None:
            return self._maker.make(call.inputs, call.dims, call.family)
        base = self._plan.calls[call.base]
        inputs = self._maker.make(base.inputs, base.dims, base.family)
        return self._maker.make_near(call.inputs, inputs)

    def _decoys_for(self, call: PlannedCall) -> Tensors:
        """Return other inputs of the same form; made once for each shape in a row."""
        key = tuple(call.dims.values())
        if key not in self._decoys:
            self._decoys = {key: self._maker.make(f"decoy {call.index}", call.dims, "normal")}
        return self._decoys[key]

    def _note_pair(self, workload: int, seconds: dict[str, float | None]) -> None:
        rivals = {name: took for name, took in seconds.items() if name not in (CANDIDATE, NULL)}
        self._pairs.setdefault(workload, []).append(
            {
                "candidate_s": seconds[CANDIDATE],
                "baselines_s": rivals,
                "null_s": seconds[NULL],
            }
        )

    def _workload(self, number: int) -> Json:
        dims = self._plan.timed[number]
        kernel = self._order.kernel
        return {
            "dims": dict(dims),
            "pairs": self._pairs[number],
            "bytes": float(evaluate(kernel.roofline_bytes, dims)),
            "flops": float(evaluate(kernel.roofline_flops, dims)),
        }

    def _tell(self, call: PlannedCall) -> None:
        now = time.monotonic()
        if now - self._told_at > _PROGRESS_S:
            self._told_at = now
            total = len(self._plan.calls)
            message = f"call {call.index + 1} of {total}"
            job.report_progress(self._order.job_dir, call.index, total, message)


def empty_facts(order: Order, begun: Begun) -> Json:
    """Return the evidence of a grading in which nothing has been measured yet."""
    return {
        "bits": begun.bits.hex(),
        "candidate_seen": begun.candidate_seen,
        "contract_seen": begun.contract_seen,
        "bench": bench(order.threads),
        "build": begun.build,
        "incidents": [asdict(incident) for incident in begun.strangers],
        "calls": [],
        "timed": [],
        "absent_baselines": {},
        "ceilings": _NOT_MEASURED,
        "mutants": None,
    }
