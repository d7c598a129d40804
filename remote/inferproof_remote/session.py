"""Freeze-frame calls: a candidate runs only while the clock does.

The sandbox is frozen from the end of one call until the next call's inputs are complete; the
grader looks at memory only while nothing in the sandbox can run. One call:

    thaw   bind                         freeze     last call's output changed?    late_finish
           decoy inputs, poisoned outputs
    thaw   prepare, or only look        freeze     output touched?                early_start
           the real inputs
    CLOCK  thaw, call, answer, freeze   CLOCK      copy outputs; guards and inputs as they were?
"""

import contextlib
import dataclasses
import os
import random
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from inferproof_remote import procfs
from inferproof_remote.arena import POISON, Arena, CallLayout, Placement, TensorSlot
from inferproof_remote.fairness import (
    CANDIDATE,
    CARRIER,
    give_way,
    hold_processor,
    prefer_sessions,
    undisturbed,
)
from inferproof_remote.freezers import NotFrozen
from inferproof_remote.incidents import BenchError, Incident
from inferproof_remote.line import Ended, Line
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.sandbox import BenchKind, Sandbox, describe
from inferproof_remote.targets import INSIDE, NullTarget, Target, runner_spec, stage

Fill = Callable[[Mapping[str, memoryview]], None]
Warm = Callable[[], None]

_MIB = 1 << 20
_START_S = 120.0
_LOOK_S = 0.001
_LATE_FIRST_S = 0.5
_LATE_LEAST_S = 0.02
_LATE_STEP_S = 0.001
# A frozen group cannot run; what a preempted task owes is charged late, by some ms if it is busy.
_FROZEN_RUN_NS = {"sigstop": 100_000, "cgroup-v1": 10_000_000, "cgroup-v2": 10_000_000}
_SETTLE_S = 0.0001
_SETTLE_LOOKS = 50
_POISON_RUN = bytes([POISON]) * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """One call. `seconds` is None if it did not end; `outputs` also has the mutated inputs.

    `revisited` says that an earlier call had its tensors at the very same addresses.
    """

    seconds: float | None
    outputs: Mapping[str, bytearray]
    incidents: tuple[Incident, ...]
    revisited: bool = False


class Session:
    """One candidate in one sandbox, called one call at a time."""

    def __init__(
        self,
        target: Target,
        *,
        plan: SandboxPlan,
        name: str,
        arena_bytes: int,
        threads: int,
        call_s: float,
        rng: random.Random,
        kind: BenchKind | None = None,
    ) -> None:
        self._target = target
        self._name = name
        self._kind = kind or describe()
        self._threads = threads
        self._has_own_core = threads < len(os.sched_getaffinity(0))
        self._call_s = self._limit_s = call_s
        self._arena = Arena(arena_bytes, rng)
        self._plan = dataclasses.replace(plan, shared_mib=-(-arena_bytes // _MIB))
        self._stack = contextlib.ExitStack()
        self._patience_s = _LATE_FIRST_S
        self._calls = 0
        self._ended: Incident | None = None
        self._found: list[Incident] = []
        self._last_outputs: list[tuple[TensorSlot, bytearray]] = []
        self._prepared_at: Placement | None = None
        self._visited: set[Placement] = set()
        self._run_ns: dict[int, int] = {}
        self._watch: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._arena.close)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="candidate-")))
            stage(self._target, folder)
            self._sandbox = stack.enter_context(
                Sandbox(self._shown(folder), name=self._name, kind=self._kind)
            )
            stack.callback(self._end_privilege)
            inside = folder if self._kind.separation == "shared-account" else INSIDE
            spec = runner_spec(self._target, PurePosixPath(inside)) | {
                "threads": self._threads,
                "arena_bytes": self._arena.size_bytes,
            }
            self._line = Line(self._sandbox, spec, arena_fd=self._arena.fd)
            stack.callback(self._line.close)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sandbox; safe to repeat."""
        self._stack.close()

    def bind_and_call(
        self,
        layout: CallLayout,
        *,
        fill: Fill,
        decoy: Fill | None = None,
        prepare: bool = False,
        warm: Warm | None = None,
        least_limit_s: float = 0.0,
    ) -> CallResult:
        """Run the candidate once on fresh inputs and return its time, its outputs, its misdeeds.

        `fill` and `decoy` write the inputs that they are given, by name; `decoy` gives other values
        of the same form, which the candidate may see before the clock runs. `prepare` says that the
        prepare inputs have changed; it is also done whenever the tensors moved. `warm` is called
        last before the clock starts. This call may take `least_limit_s` if that is more than others
        may. After a fatal incident every further call returns that incident again.
        """
        self._calls += 1
        self._found = []
        self._limit_s = max(self._call_s, least_limit_s)
        if self._ended is not None:
            return CallResult(seconds=None, outputs={}, incidents=(self._ended,))
        seconds: float | None = None
        outputs: dict[str, bytearray] = {}
        placement = self._arena.place(layout.tensors)
        revisited = placement in self._visited
        self._visited.add(placement)
        try:
            self._bind(layout, placement)
            self._rehearse(layout, placement, fill=fill, decoy=decoy, prepare=prepare)
            seconds, outputs = self._call(layout, placement, fill, warm)
        except Ended as end:
            self._give_up(end)
        except NotFrozen as error:
            self._give_up(Ended("timed_out", str(error)))
        found = tuple(self._found)
        return CallResult(seconds=seconds, outputs=outputs, incidents=found, revisited=revisited)

    def wake(self) -> None:
        """Thaw the sandbox, have it answer and freeze it: a call's way without its work.

        Filling tensors has driven that way out of every cache; for the next call, in whichever
        sandbox, it is warm again. Only for a target that does nothing: here nothing is checked.

        Raises:
            BenchError: it does not answer or does not stop; no candidate is to blame for that.
        """
        try:
            nonce = self._line.send(b"l")
            self._sandbox.thaw()
            self._line.wait(nonce, self._call_s, awake=self._has_own_core)
            self._sandbox.freeze()
        except (Ended, NotFrozen) as error:
            raise BenchError(f"the harness's own sandbox {self._name} is over: {error}") from error

    def run_on(self, cores: Iterable[int]) -> None:
        """Leave these cores to the sandbox; the caller waits for it on another one."""
        self._watch = undisturbed
        carriers = self._sandbox.carriers()
        for task in self._tasks():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(task, cores)
            hold_processor(task, CARRIER if task in carriers else CANDIDATE)

    def _end_privilege(self) -> None:
        """Have what is to be killed give way to its killer."""
        for task in self._tasks():
            give_way(task)

    def _tasks(self) -> list[int]:
        return [task for pid in self._sandbox.pids() for task in procfs.threads(pid)]

    def _shown(self, folder: Path) -> SandboxPlan:
        return dataclasses.replace(self._plan, placed={**self._plan.placed, INSIDE: folder})

    def _start(self) -> None:
        try:
            self._line.wait(self._line.ready, _START_S + self._call_s)
            prefer_sessions(self._sandbox.pids())
            self._freeze()
        except Ended as end:
            code = "import_failed" if end.code == "crashed" else end.code
            self._give_up(Ended(code, end.detail))
        except NotFrozen as error:
            self._give_up(Ended("timed_out", str(error)))

    def _bind(self, layout: CallLayout, placement: Placement) -> None:
        """Tell the runner where the tensors will lie; meanwhile the last output must not change."""
        tensors = {
            spec.name: {"offset": slot.offset, "dtype": spec.dtype, "shape": spec.shape}
            for spec, slot in zip(layout.tensors, placement.slots, strict=True)
        }
        message = {
            "tensors": tensors,
            "dims": dict(layout.dims),
            "params": {name: list(param) for name, param in layout.params.items()},
            "prepare": list(layout.prepare),
        }
        with self._thawed():
            self._line.wait(self._line.send(b"b", message), self._limit_s)
            time.sleep(_LOOK_S if self._last_outputs else 0)
        self._check_late()
        self._last_outputs = [
            (slot, copy)
            for slot, copy in self._last_outputs
            if slot.end <= placement.start or placement.end <= slot.offset
        ]

    def _rehearse(
        self,
        layout: CallLayout,
        placement: Placement,
        *,
        fill: Fill,
        decoy: Fill | None,
        prepare: bool,
    ) -> None:
        """Let the candidate prepare, and see decoys: no output may be touched yet."""
        slots = {slot.name: slot for slot in placement.slots}
        outputs = [slots[spec.name] for spec in layout.outputs]
        self._arena.arm_guards(placement)
        for slot in outputs:
            self._arena.poison(slot)
        wanted = self._target.prepare is not None and (
            prepare or placement is not self._prepared_at
        )
        if decoy is None and not wanted:
            return
        early = set(layout.prepare) if wanted else set[str]()
        names = [spec.name for spec in layout.inputs]
        if decoy is not None:
            decoy(self._views(slots, [name for name in names if name not in early]))
        if early:
            fill(self._views(slots, [name for name in names if name in early]))
        with self._thawed():
            self._line.wait(self._line.send(b"p" if wanted else b"l"), self._limit_s)
            time.sleep(_LOOK_S)
        self._prepared_at = placement if wanted else self._prepared_at
        untouched = all(self._arena.is_poison(slot) for slot in outputs)
        if not (untouched and self._arena.guards_hold(placement)):
            self._report("early_start", "wrote to memory before the call")
            self._arena.arm_guards(placement)
            for slot in outputs:
                self._arena.poison(slot)

    def _call(
        self, layout: CallLayout, placement: Placement, fill: Fill, warm: Warm | None
    ) -> tuple[float, dict[str, bytearray]]:
        slots = {slot.name: slot for slot in placement.slots}
        names = [spec.name for spec in layout.inputs]
        fill(self._views(slots, names))
        given = {name: self._arena.copy(slots[name]) for name in names}
        seconds = self._timed(warm)
        self._check_late()
        shown = [*(spec.name for spec in layout.outputs), *layout.mutates]
        outputs = {name: self._arena.copy(slots[name]) for name in shown}
        self._last_outputs = [(slots[name], outputs[name]) for name in shown]
        if self._line.stray():
            self._report("protocol_forged", "answered more often than it was called")
        if not self._arena.guards_hold(placement):
            self._report("guard_overwritten", "wrote outside its tensors")
        for name in names:
            if name not in layout.mutates and not self._arena.equals(slots[name], given[name]):
                self._report("input_mutated", f"changed its input {name}")
        over = self._sandbox.overuse()
        if over is not None:
            raise Ended(over.code, over.detail)
        silent = isinstance(self._target, NullTarget)
        if not silent and any(_POISON_RUN in output for output in outputs.values()):
            self._watch_late()
        return seconds, outputs

    def _timed(self, warm: Warm | None) -> float:
        """Return the seconds from thaw to confirmed freeze of one call."""
        nonce = self._line.send(b"c")
        steps = [self._check_frozen, *([] if warm is None else [warm])]
        if self._kind.freezer == "sigstop":  # could wake itself meanwhile: it is looked at last
            steps.reverse()
        for step in steps:
            step()
        with self._watch():
            started_ns = time.perf_counter_ns()
            self._sandbox.thaw()
            self._line.wait(nonce, self._limit_s, awake=self._has_own_core)
            self._sandbox.freeze()
            ended_ns = time.perf_counter_ns()
        self._run_ns = self._settled_run_ns()
        return (ended_ns - started_ns) / 1e9

    def _watch_late(self) -> None:
        """Give an unfinished output a moment: if it still grows, the answer came too early.

        Long the first time; a candidate that only left a gap does not cost that again.
        """
        with self._thawed():
            deadline = time.perf_counter() + self._patience_s
            while time.perf_counter() < deadline and self._is_last_output_unchanged():
                time.sleep(_LATE_STEP_S)
        if self._is_last_output_unchanged():
            self._patience_s = _LATE_LEAST_S
        self._check_late()

    def _check_late(self) -> None:
        """Report it if the last call's output is no longer what it was at its answer."""
        if not self._is_last_output_unchanged():
            self._report("late_finish", "went on writing its output after its answer")
            self._last_outputs = []

    def _is_last_output_unchanged(self) -> bool:
        return all(self._arena.equals(slot, copy) for slot, copy in self._last_outputs)

    @contextlib.contextmanager
    def _thawed(self) -> Generator[None]:
        self._check_frozen()
        self._sandbox.thaw()
        yield
        self._freeze()

    def _freeze(self) -> None:
        self._sandbox.freeze()
        self._run_ns = self._settled_run_ns()

    def _settled_run_ns(self) -> dict[int, int]:
        """Return the CPU time so far, once it stands still.

        A task counts as frozen shortly before it has left the processor and paid for its time.
        """
        before = self._sandbox.run_ns()
        for _ in range(_SETTLE_LOOKS):
            time.sleep(_SETTLE_S)
            now = self._sandbox.run_ns()
            if now == before:
                break
            before = now
        return before

    def _check_frozen(self) -> None:
        """Report it if anything ran since the freeze, whoever woke it."""
        if self._line.has_ended():
            return
        before, now = self._run_ns, self._sandbox.run_ns()
        ran_ns = sum(spent - before.get(pid, 0) for pid, spent in now.items())
        left = before.keys() - now.keys()
        allowed_ns = _FROZEN_RUN_NS[self._kind.freezer]
        if ran_ns > allowed_ns or left or not self._sandbox.is_frozen():
            detail = f"ran for {ran_ns / 1000:.0f} us while it was frozen"
            self._report("ran_while_frozen", detail)

    def _views(self, slots: Mapping[str, TensorSlot], names: list[str]) -> dict[str, memoryview]:
        return {name: self._arena.view(slots[name]) for name in names}

    def _report(self, code: str, detail: str) -> None:
        self._found.append(Incident(code, self._calls - 1, detail))

    def _give_up(self, end: Ended) -> None:
        """Remember why no further call is possible, and end the sandbox at once."""
        self._report(end.code, end.detail)
        self._ended = self._found[-1]
        self._end_privilege()
        self._sandbox.kill()
