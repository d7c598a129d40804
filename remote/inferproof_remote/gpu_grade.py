"""One grading of device code: the grader draws, asks the launcher, judges in float64, and times.

References and expected outputs live in this process's context alone; the launcher's has neither.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

import torch

from inferproof_remote import build_cuda, diagnostics, job
from inferproof_remote.build_triton import NotCompiled
from inferproof_remote.call_facts import CallRecord
from inferproof_remote.cuda_kernels import SOURCE
from inferproof_remote.cuda_nvml import Meter
from inferproof_remote.draws import Plan, PlannedCall, Scope, make_plan
from inferproof_remote.gpu_arms import Candidate, GpuAnswer
from inferproof_remote.gpu_race import Race
from inferproof_remote.gpu_sanitize import drawn_shapes, incidents, sanitize
from inferproof_remote.grade import Begun, Order
from inferproof_remote.grading import empty_facts
from inferproof_remote.incidents import BenchError, Incident
from inferproof_remote.inputs import InputMaker, Tensors
from inferproof_remote.launches import UnfitLaunch
from inferproof_remote.line import Ended
from inferproof_remote.mounts import first_gpu
from inferproof_remote.mutants import mutant_facts
from inferproof_remote.oracle import History, Oracle
from inferproof_remote.repeats import Repeats
from inferproof_remote.sanitizer import Findings

Json: TypeAlias = dict[str, object]
_COMPILE_S = 120
_TRIED_WITHOUT = 3
_NO_GPU = (
    "numerics of cuda candidates need an NVIDIA GPU, and this target has none that torch can use;"
    " compile_kernel works without one"
)
_NO_LAUNCHES = "the manifest has no `launches`, so there is nothing that our launcher could launch"


def run(order: Order, begun: Begun) -> Json:
    """Return all that is measured of the candidate, in the form of the evidence."""
    torch.set_num_threads(order.threads)
    facts = empty_facts(order, begun)
    if begun.strangers or not begun.build["ok"]:
        return facts
    why = _unable(order)
    if why:
        return facts | {"incidents": [asdict(why)]}
    maker = InputMaker(begun.bits, order.kernel)
    oracle = Oracle(order.kernel, order.contract)
    mutants = mutant_facts(begun.bits, oracle, maker) if order.arm else None
    scope = Scope(graded=order.graded, zoo=order.zoo, timing=order.timing)
    plan = make_plan(begun.bits, order.kernel, scope)
    with ExitStack() as stack:
        grading = GpuGrading(order, begun, plan, oracle=oracle, maker=maker)
        grading.go(stack)
    return facts | {"mutants": mutants} | grading.facts()


def _unable(order: Order) -> Incident | None:
    if not order.manifest.get("launches"):
        return Incident("import_failed", None, _NO_LAUNCHES)
    if not torch.cuda.is_available():
        return Incident("infrastructure", None, _NO_GPU)
    return None


class GpuGrading:
    """Carries out one plan; what it has seen so far is its state."""

    def __init__(
        self, order: Order, begun: Begun, plan: Plan, *, oracle: Oracle, maker: InputMaker
    ) -> None:
        self._order = order
        self._begun = begun
        self._plan = plan
        self._oracle = oracle
        self._maker = maker
        self._history = History(begun.bits)
        self._repeats = Repeats(plan)
        self._records: list[CallRecord] = []
        self._incidents: list[Incident] = []
        self._measured: Json = {}
        self._chains: list[Json] = []
        self._meter = Meter(uuid=first_gpu())
        self._candidate: Candidate | None = None
        self._sanitized: list[Findings] | None = None
        self._idle: list[str] | None = None

    def go(self, stack: ExitStack) -> None:
        """Make every call of the plan, and time it if all were right."""
        calls = self._plan.calls[: self._plan.settled]
        try:
            harness = compile_harness()
            candidate = Candidate(self._order, self._begun.bits, harness)
            stack.enter_context(candidate)
            race = self._new_race(candidate, harness)
            small = drawn_shapes(self._begun.bits, self._order) if self._order.sanitize else []
            candidate.compile_for([*(call.dims for call in self._plan.calls), *small])
            candidate.start()
            self._candidate = candidate
            if self._check(candidate, calls):
                self._sanitize(candidate, small)
                self._compete(candidate, race, calls)
        except Ended as ended:
            self._incidents.append(Incident(ended.code, len(self._records), ended.detail))
        except NotCompiled as error:
            self._measured = {"build": _not_built(self._begun, error)}
        except UnfitLaunch as error:
            self._incidents.append(Incident("crashed", len(self._records), str(error)))

    def _check(self, candidate: Candidate, calls: Sequence[PlannedCall]) -> bool:
        """Make every call that is not timed; return whether all were right."""
        for call in calls:
            job.report_progress(self._order.job_dir, call.index, len(calls), "checking")
            self._make(candidate, call)
            if self._incidents:
                return False
        return self._repeats.all_fine

    def _compete(
        self, candidate: Candidate, race: Race | None, calls: Sequence[PlannedCall]
    ) -> None:
        """Time a candidate that is right; last of all, see which kernels it could do without."""
        if race is not None and not self._incidents:
            self._run(race)
        if self._order.kernel.engages is not None and not self._incidents:
            self._idle = self._find_idle(candidate, calls)

    def facts(self) -> Json:
        """Return what was seen, in the form of the evidence."""
        return {
            "incidents": [asdict(incident) for incident in self._all_incidents()],
            "calls": [record.to_json() for record in self._records],
            "gpu": None if self._candidate is None else self._gpu(self._candidate),
        } | self._measured

    def _gpu(self, candidate: Candidate) -> Json:
        device = candidate.device
        return {
            "name": device["name"],
            "uuid": device["uuid"],
            "driver": f"{self._meter.driver()} ({device['driver']})".strip(),
            "memory_bytes": device["memory_bytes"],
            "attributes": device["attributes"],
            "clocks": self._meter.facts(),
            "kernels": [dict(row) for row in candidate.needs.values()],
            "chains": self._chains,
            "sanitizer": None
            if self._sanitized is None
            else [each.to_json() for each in self._sanitized],
            "idle": self._idle,
        }

    def _find_idle(self, candidate: Candidate, calls: Sequence[PlannedCall]) -> list[str]:
        """Return the kernels without which the outputs are as right as with them.

        Last of all, since what waits for a kernel that never comes ends the launcher.
        """
        idle: list[str] = []
        tried = [call for call in calls if call.phase == "numerics"][:_TRIED_WITHOUT]
        try:
            for name in candidate.kernels():
                if all(self._is_right(candidate, call, without=name) for call in tried):
                    idle.append(name)
        except Ended:
            return idle
        return idle

    def _is_right(self, candidate: Candidate, call: PlannedCall, *, without: str) -> bool:
        inputs = self._inputs(call)
        answer = candidate.call(call.dims, inputs, without=without)
        question = self._oracle.ask({n: each.cuda() for n, each in inputs.items()}, call.dims)
        outputs = {name: value.cuda() for name, value in answer.outputs.items()}
        errors = question.judge(outputs, self._oracle.bars, poisoned=True)
        return all(error.within(self._oracle.bars) for error in errors.values())

    def _sanitize(self, candidate: Candidate, shapes: list[dict[str, int]]) -> None:
        """Run the calls of a right candidate once more on small shapes, under every tool."""
        if not shapes:
            return
        job.report_progress(self._order.job_dir, 0, len(shapes), "compute-sanitizer")
        self._sanitized = sanitize(self._order, self._begun.bits, candidate, shapes)
        self._incidents += incidents(self._sanitized)

    def _new_race(self, candidate: Candidate, harness: bytes) -> Race | None:
        """Return the timed part; its baselines are made beside the checks that come first."""
        if self._begun.baselines is None:
            return None
        race = Race(
            *(self._order, self._begun.bits),
            candidate=candidate,
            baselines=self._begun.baselines,
            harness=harness,
            meter=self._meter,
        )
        race.ask_baselines(self._plan.timed)
        return race

    def _run(self, race: Race) -> None:
        job.report_progress(self._order.job_dir, 0, len(self._plan.timed), "timing")
        race.await_baselines(len(self._plan.timed))
        try:
            for number, dims in enumerate(self._plan.timed):
                race.run(number, dims, self._oracle, first_index=len(self._records))
                self._records += race.take_records()
        finally:
            self._records += race.take_records()
            self._incidents += race.incidents
            self._measured, self._chains = race.facts(), race.chains()

    def _make(self, candidate: Candidate, call: PlannedCall) -> None:
        """Make one call, judge what it wrote, and remember both."""
        inputs = self._inputs(call)
        answer = candidate.call(call.dims, inputs)
        self._note_touched(call, answer)
        on_device = {name: value.cuda() for name, value in inputs.items()}
        outputs = {name: value.cuda() for name, value in answer.outputs.items()}
        question = self._oracle.ask(on_device, call.dims)
        bars = self._oracle.bars
        errors = question.judge(outputs, bars, poisoned=True)
        errors = self._history.explain(outputs, question, errors, bars)
        self._history.add(call.index, question.yardstick, whole=self._repeats.has_later(call))
        fine = all(error.within(bars) for error in errors.values())
        self._records.append(
            CallRecord(
                index=call.index,
                phase=call.phase,
                dims=call.dims,
                family=call.family,
                seconds=answer.seconds,
                outputs=errors,
                same_bits=self._repeats.note(call, outputs, fine=fine),
            )
        )

    def _note_touched(self, call: PlannedCall, answer: GpuAnswer) -> None:
        for name, count in answer.guards.items():
            detail = f"{count} bytes beside {name} were written to"
            self._incidents.append(Incident("guard_overwritten", call.index, detail))
        for name in answer.mutated:
            self._incidents.append(Incident("input_mutated", call.index, f"{name} was changed"))

    def _all_incidents(self) -> list[Incident]:
        return self._incidents + self._repeats.incidents(self._records)

    def _inputs(self, call: PlannedCall) -> Tensors:
        if call.phase != "near_duplicate" or call.base is None:
            return self._maker.make(call.inputs, call.dims, call.family)
        base = self._plan.calls[call.base]
        inputs = self._maker.make(base.inputs, base.dims, base.family)
        return self._maker.make_near(call.inputs, inputs)


def _not_built(begun: Begun, error: NotCompiled) -> Json:
    """Return the build's facts once a drawn shape does not compile."""
    found = [diagnostics.as_json(each) for each in error.diagnostics]
    return begun.build | {"ok": False, "code": error.code, "diagnostics": found}


def compile_harness() -> bytes:
    """Return our own device code, compiled for the device that is here.

    Raises:
        BenchError: there is no nvcc, or it fails.
    """
    nvcc, arch = build_cuda.find_compiler(), build_cuda.native_arch()
    if nvcc is None or arch is None:
        raise BenchError("nvcc and an NVIDIA GPU are needed for the harness's own kernels")
    folder = Path(tempfile.mkdtemp(prefix="harness-"))
    try:
        source, cubin = folder / "harness.cu", folder / "harness.cubin"
        source.write_text(SOURCE, encoding="utf-8")
        command = [str(nvcc), "-cubin", f"-arch={arch}", "-O3", "-o", str(cubin), str(source)]
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMPILE_S, check=False
        )
        if said.returncode != 0:
            raise BenchError(f"the harness's own kernels do not compile: {said.stderr[:500]}")
        return cubin.read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
