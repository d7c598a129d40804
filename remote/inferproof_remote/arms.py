"""The arms of a grading: candidate, null and baselines, each in a sandbox of its own."""

import contextlib
import os
import random
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from types import TracebackType
from typing import Self

from inferproof_remote import job
from inferproof_remote.arena import CallLayout, TensorSpec, needed_bytes
from inferproof_remote.baseline import Baseline, absence, cache_folder, make_baseline
from inferproof_remote.draws import CANDIDATE, NULL, Plan
from inferproof_remote.fairness import environment
from inferproof_remote.grade import Order
from inferproof_remote.inputs import InputMaker, Tensors
from inferproof_remote.kernel import Dims, Kernel, TensorShape
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.numerics import copy_bytes
from inferproof_remote.session import CallResult, Session
from inferproof_remote.stream import Stream
from inferproof_remote.targets import CppTarget, NullTarget, PythonTarget, Target
from inferproof_remote.workshop import COMPILE_S

# A compiler and torch run in a baseline's sandbox; its code is the contract's, and trusted.
_BASELINE_MEMORY_MIB, _BASELINE_TMP_MIB, _BASELINE_PROCESSES = 8192, 4096, 256
_BASELINE_CALL_S = 300.0
_WARM_CALLS = 3
_PILOT = "pilot"
# Threads that spin while they wait, woken together on one core, lose whole time slices: measured
# 1.4 ms against 8 to 11 ms for the same kernel. Every arm gets the same setting.


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What one call gets: the inputs, and decoys of the same form to be seen before the clock."""

    dims: Dims
    inputs: Tensors
    decoys: Tensors


class Arms:
    """Sessions by name; all end when the `with` block does."""

    def __init__(self, order: Order, bits: bytes, plan: Plan) -> None:
        self._order = order
        self._bits = bits
        self._plan = plan
        self._stack = contextlib.ExitStack()
        self._sessions: dict[str, Session] = {}
        self._pilot: Session | None = None
        self._arena_bytes = _arena_bytes(order.kernel, plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def start_candidate(self) -> None:
        """Start the candidate under the campaign's limits."""
        self._start_limited(CANDIDATE, candidate_target(self._order))

    def restart_candidate(self, launch: int) -> None:
        """End the candidate's process and start it anew, as launch number `launch`."""
        self._sessions.pop(CANDIDATE).close()
        self._start_limited(CANDIDATE, candidate_target(self._order), launch=launch)

    def start_rivals(self, maker: InputMaker) -> dict[str, str]:
        """Start null and all baselines, side by side; return why a baseline is absent, by name."""
        names = self._order.kernel.baselines
        # A sandbox ends with the thread that started it, so the threads live as long as the arms.
        pool = self._stack.enter_context(ThreadPoolExecutor(max_workers=2 + len(names)))
        idle = [pool.submit(self._start_limited, name, NullTarget()) for name in (NULL, _PILOT)]
        told = pool.map(self._start_baseline, names, repeat(maker))
        absent = {name: why for name, why in zip(names, told, strict=True) if why}
        for started in idle:
            started.result()
        self._part_cores()
        self._pilot = self._sessions.pop(_PILOT)
        return absent

    def _part_cores(self) -> None:
        """Keep one core for this thread, which waits awake; give sandboxes what they may use.

        Where all cores are busy, Linux may wake a sandbox on the waiting thread's core.
        """
        cores = os.sched_getaffinity(0)
        if self._order.threads >= len(cores):
            return
        own = min(cores)
        self._stack.callback(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {own})
        for session in self._sessions.values():
            session.run_on(sorted(cores - {own})[: self._order.threads])

    def _start_baseline(self, name: str, maker: InputMaker) -> str:
        """Start and warm a baseline; return why it cannot run, or nothing."""
        if why := absence(name):
            return why
        folder = self._order.job_dir / "baselines" / name
        made = make_baseline(
            name, self._order.kernel, self._order.contract, folder, cache=self._cache()
        )
        self._start(name, made.target, self._baseline_plan(made), call_s=_BASELINE_CALL_S)
        for dims in self._plan.timed:
            inputs = maker.make(f"warm {name}", dims, "normal")
            given = Given(dims=dims, inputs=inputs, decoys=inputs)
            for _ in range(_WARM_CALLS):
                result = self.call(name, given)
                if result.incidents:
                    del self._sessions[name]
                    return result.incidents[0].detail
        return ""

    def _cache(self) -> Path:
        """Return where baselines keep what they compile: what decides is compiled anew.

        Whoever has this account could slow a baseline in a folder that outlives the job.
        """
        order = self._order
        if not order.graded:
            return cache_folder(order.contract)
        fresh = tempfile.TemporaryDirectory(prefix="compiled-", dir=order.job_dir)
        return Path(self._stack.enter_context(fresh))

    def call(self, name: str, given: Given, *, first: bool = False) -> CallResult:
        """Run one arm once on `given`; the `first` call of a shape may compile for it."""
        kernel = self._order.kernel
        return self._sessions[name].bind_and_call(
            layout(kernel, given.dims),
            fill=lambda views: _write(views, given.inputs),
            decoy=lambda views: _write(views, given.decoys),
            prepare=bool(kernel.prepare),
            warm=self._warm,
            least_limit_s=COMPILE_S if first else 0.0,
        )

    def _warm(self) -> None:
        """Go a call's way once in a sandbox that is no arm, so that every arm finds it warm."""
        if self._pilot is not None:
            self._pilot.wake()

    def __contains__(self, name: str) -> bool:
        return name in self._sessions

    def _start_limited(self, name: str, target: Target, *, launch: int = 0) -> None:
        order = self._order
        plan = SandboxPlan(
            memory_mib=int(order.limit("memory_mib")),
            tmp_mib=int(order.limit("tmp_mib")),
            processes=int(order.limit("processes")),
            bound=True,
            env=environment(self._order.threads),
        )
        self._start(name, target, plan, call_s=order.limit("call_s"), launch=launch)

    def _start(
        self, name: str, target: Target, plan: SandboxPlan, *, call_s: float, launch: int = 0
    ) -> None:
        places = Stream(self._bits, f"arena {name} {launch}")
        session = Session(
            target,
            plan=plan,
            name=job.sandbox_name(name),
            arena_bytes=self._arena_bytes,
            threads=self._order.threads,
            call_s=call_s,
            rng=random.Random(places.word()),  # noqa: S311 (of bits)
        )
        self._sessions[name] = self._stack.enter_context(session)

    def _baseline_plan(self, made: Baseline) -> SandboxPlan:
        return SandboxPlan(
            writable=() if made.cache is None else (made.cache,),
            memory_mib=_BASELINE_MEMORY_MIB,
            tmp_mib=_BASELINE_TMP_MIB,
            processes=_BASELINE_PROCESSES,
            env={**environment(self._order.threads), **made.env},
        )


def candidate_target(order: Order) -> Target:
    """Return what the manifest says is to be run."""
    entry = str(order.manifest["entry"])
    named = order.manifest.get("prepare")
    prepare = None if named is None else str(named)
    if order.manifest["language"] == "python":
        source = str(order.manifest["source"])
        return PythonTarget(folder=order.candidate, source=source, entry=entry, prepare=prepare)
    return CppTarget(library=order.library, entry=entry, prepare=prepare)


def layout(kernel: Kernel, dims: Dims) -> CallLayout:
    """Return the arguments of a call under `dims`."""
    params = {
        name: ("i64" if isinstance(value, int) else "f32", value)
        for name, value in kernel.params.items()
    }
    return CallLayout(
        dims=dims,
        inputs=_specs(kernel.inputs, dims),
        outputs=_specs(kernel.outputs, dims),
        params=params,
        prepare=kernel.prepare,
        mutates=kernel.mutates,
    )


def _specs(tensors: tuple[TensorShape, ...], dims: Dims) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(each.name, each.dtype, each.extents(dims)) for each in tensors)


def _arena_bytes(kernel: Kernel, plan: Plan) -> int:
    """Return room for the largest call at many different places."""
    most = max(needed_bytes(layout(kernel, call.dims).tensors) for call in plan.calls)
    return most + most // 2 + (1 << 20)


def _write(views: Mapping[str, memoryview], tensors: Tensors) -> None:
    for name, view in views.items():
        copy_bytes(tensors[name], view)
