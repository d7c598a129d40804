"""The timed part of a grading on a GPU: candidate and baselines by turns, and checks meanwhile."""

import contextlib
import struct
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import torch
from torch import Tensor

from inferproof_remote.baseline import COMPILED
from inferproof_remote.call_facts import CallRecord
from inferproof_remote.cuda_driver import Driver
from inferproof_remote.cuda_nvml import Meter
from inferproof_remote.draws import CANDIDATE
from inferproof_remote.expressions import evaluate
from inferproof_remote.gpu_arms import Candidate
from inferproof_remote.gpu_ceilings import measure_ceilings
from inferproof_remote.gpu_chain import (
    Harness,
    State,
    TensorPlan,
    draw_pool,
    pool_seed,
)
from inferproof_remote.gpu_layout import tensor_bytes, tensor_offsets, tensor_rows
from inferproof_remote.gpu_process import DeviceProcess
from inferproof_remote.gpu_serve import tensor_plans
from inferproof_remote.gpu_timing import CACHES, LONGEST, ArmTimer, Cache, Round, Watched
from inferproof_remote.gpu_wire import SharedBytes
from inferproof_remote.grade import Order
from inferproof_remote.incidents import BenchError, Incident
from inferproof_remote.inputs import Tensors
from inferproof_remote.job import as_number, as_table
from inferproof_remote.kernel import Dims
from inferproof_remote.line import Ended
from inferproof_remote.numerics import DTYPES, tensor_of
from inferproof_remote.oracle import Oracle
from inferproof_remote.stream import Stream

Json: TypeAlias = dict[str, object]
_BASELINE_S = 300.0
_LEAST_CHECKS = 8
_CHECKED_BYTES = 1 << 29
_FIRST_FLOAT_AGAIN = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """One shape with one state of the cache: what each arm took in each round."""

    dims: Dims
    cache: Cache
    rounds: list[dict[str, Round]]
    timers: Mapping[str, ArmTimer]


class Race:
    """Times every arm on every timed shape."""

    def __init__(
        self,
        order: Order,
        bits: bytes,
        *,
        candidate: Candidate,
        baselines: DeviceProcess,
        harness: bytes,
        meter: Meter,
    ) -> None:
        self._order = order
        self._bits = bits
        self.candidate = candidate
        self._cubin = harness
        self._baselines = baselines
        self._absent: dict[str, str] = {}
        self._laid: list[list[str]] = []
        self._courses: list[_Course] = []
        self._records: list[CallRecord] = []
        self._meter = meter
        self.incidents: list[Incident] = []

    def ask_baselines(self, timed: Sequence[Dims]) -> None:
        """Have every baseline compiled for every shape, while other things are done."""
        self._baselines.shared.view(0, len(self._cubin))[:] = self._cubin
        trusted = _Trusted(self._baselines)
        trusted.post({"do": "open", "harness_bytes": len(self._cubin)})
        for number, dims in enumerate(timed):
            for name in self._order.kernel.baselines:
                trusted.post(self._chain_request(name, number, dims))

    def await_baselines(self, count: int) -> None:
        """Wait until the baselines are ready on every shape."""
        _Trusted(self._baselines).collect(_BASELINE_S)
        self._laid = [self._lay_baselines(number) for number in range(count)]

    def run(self, number: int, dims: Dims, oracle: Oracle, *, first_index: int) -> None:
        """Time every arm on one shape, cold and warm; check what the candidate wrote meanwhile."""
        seed, shared = self._seed(number), self.candidate.process.shared
        checker = _Checker(
            *(self._order, dims, seed), harness=self._cubin, oracle=oracle, shared=shared
        )
        self.candidate.lay_chain(f"{CANDIDATE} {number}", dims, seed)
        arms = [CANDIDATE, *self._laid[number]]
        for cache in CACHES:
            stream = Stream(self._bits, f"race {number} {cache}")
            timers = {arm: self._timer(arm, number, cache, stream) for arm in arms}
            course = _Course(dims=dims, cache=cache, rounds=[], timers=timers)
            self._courses.append(course)
            self._run_course(course, stream, checker, first_index)
            for name, count in timers[CANDIDATE].guards().items():
                detail = f"{count} bytes beside {name} were written to while it was timed"
                self.incidents.append(Incident("guard_overwritten", None, detail))

    def take_records(self) -> list[CallRecord]:
        """Return the timed calls that were checked since this was last asked."""
        taken, self._records = self._records, []
        return taken

    def facts(self) -> Json:
        """Return what was timed, in the form of the evidence."""
        l2_bytes = int(as_number(self._attributes()["l2_bytes"], "l2_bytes"))
        return {
            "timed": [self._workload(each) for each in self._courses if each.rounds],
            "absent_baselines": self._absent,
            "ceilings": measure_ceilings(l2_bytes),
        }

    def chains(self) -> list[Json]:
        """Return how each arm's chain went."""
        return [
            _chain(course, arm)
            for course in self._courses
            if course.rounds
            for arm in course.timers
        ]

    def _run_course(
        self, course: _Course, stream: Stream, checker: "_Checker", first_index: int
    ) -> None:
        pairs = self._order.kernel.pairs
        checked = set(stream.sample(range(pairs), checker.affordable(pairs)))
        for number in range(pairs):
            taken: dict[str, Round] = {}
            for arm in stream.shuffled(list(course.timers)):
                timer = course.timers[arm]
                if arm == CANDIDATE and number in checked:
                    taken[arm], watched = timer.time_watched(checker.offsets)
                    index = first_index + len(self._records)
                    self._records.append(checker.check(watched, index, taken[arm].call_s))
                else:
                    taken[arm] = timer.time(again=arm == CANDIDATE)
            course.rounds.append(taken)
            self._meter.take()

    def _timer(self, arm: str, number: int, cache: Cache, stream: Stream) -> ArmTimer:
        process = self.candidate.process if arm == CANDIDATE else _Trusted(self._baselines)
        limit_s = self._order.limit("call_s") if arm == CANDIDATE else _BASELINE_S
        return ArmTimer(process, f"{arm} {number}", cache, stream=stream, limit_s=limit_s)

    def _lay_baselines(self, number: int) -> list[str]:
        """Wait for the chain of each baseline; note why one cannot run."""
        laid: list[str] = []
        for name in self._order.kernel.baselines:
            try:
                self._baselines.collect(_BASELINE_S)
                laid.append(name)
            except Ended as ended:
                self._absent[name] = f"{ended.detail} (shape {number})"
        return [name for name in laid if name not in self._absent]

    def _chain_request(self, name: str, number: int, dims: Dims) -> Json:
        kernel = self._order.kernel
        tensors = (*kernel.inputs, *kernel.outputs)
        return {
            "do": "chain",
            "id": f"{name} {number}",
            "seed": self._seed(number),
            "longest": LONGEST,
            "compiled": name == COMPILED,
            "extents": {each.name: each.extents(dims) for each in tensors},
            "params": dict(kernel.params),
            **tensor_rows(kernel, dims),
        }

    def _seed(self, number: int) -> int:
        return Stream(self._bits, f"chain {number}").word()

    def _workload(self, course: _Course) -> Json:
        kernel = self._order.kernel
        return {
            "dims": dict(course.dims),
            "cache": course.cache,
            "pairs": [_pair(each) for each in course.rounds],
            "bytes": float(evaluate(kernel.roofline_bytes, course.dims)),
            "flops": float(evaluate(kernel.roofline_flops, course.dims)),
        }

    def _attributes(self) -> Mapping[str, object]:
        return as_table(self.candidate.device["attributes"], "attributes")


class _Trusted:
    """Our own process: when it fails, the bench failed and not the candidate."""

    def __init__(self, process: DeviceProcess) -> None:
        self._process = process

    def ask(self, request: Mapping[str, object], timeout_s: float) -> Mapping[str, object]:
        """Return the answer to a request."""
        with _not_the_candidate():
            return self._process.ask(request, timeout_s)

    def post(self, request: Mapping[str, object]) -> None:
        """Send a request whose answer is collected later."""
        with _not_the_candidate():
            self._process.post(request)

    def collect(self, timeout_s: float) -> Mapping[str, object]:
        """Return the answer to the oldest request without one."""
        with _not_the_candidate():
            return self._process.collect(timeout_s)


@contextlib.contextmanager
def _not_the_candidate() -> Generator[None]:
    try:
        yield
    except Ended as ended:
        raise BenchError(f"the baselines' process: {ended.detail}") from ended


class _Checker:
    """Rebuilds a watched link's inputs here, from key and sum, and judges what the link wrote."""

    def __init__(
        self,
        order: Order,
        dims: Dims,
        seed: int,
        *,
        harness: bytes,
        oracle: Oracle,
        shared: SharedBytes,
    ) -> None:
        self._shared = shared
        self._order = order
        self._dims = dims
        self._oracle = oracle
        self.offsets = tensor_offsets(order.kernel, dims)
        self._harness = Harness(Driver(), harness)
        self._held: list[Tensor] = []
        rows = tensor_rows(order.kernel, dims)
        self._inputs = tensor_plans(rows["inputs"])
        self._tensors = {each.name: self._empty(each) for each in self._inputs}
        self._pools = [
            draw_pool(self._harness, tensor, number, seed, self._allocate)
            for number, tensor in enumerate(self._inputs)
            if not tensor.fixed
        ]
        for number, tensor in enumerate(self._inputs):
            if tensor.fixed:
                place = self._tensors[tensor.name].data_ptr()
                self._harness.draw(place, tensor, pool_seed(seed, number), 0)
        self._sums = torch.zeros(LONGEST + 1, dtype=torch.int64, device="cuda")
        self._key = torch.zeros(2, dtype=torch.int64, device="cuda")
        self._watched = torch.tensor([-1], device="cuda")

    def affordable(self, pairs: int) -> int:
        """Return how many rounds are checked whole: all when that is cheap."""
        size = sum(tensor.numel() for tensor in self._tensors.values())
        return min(pairs, max(_LEAST_CHECKS, _CHECKED_BYTES // max(1, 2 * size)))

    def check(self, watched: Watched, index: int, seconds: float) -> CallRecord:
        """Return the record of the watched call."""
        outputs = {
            tensor.name: tensor_of(
                self._shared.view(self.offsets[tensor.name], tensor_bytes(tensor, self._dims)),
                *(tensor.dtype, tensor.extents(self._dims)),
            ).cuda()
            for tensor in self._order.kernel.results
        }
        question = self._oracle.ask(self._inputs_of(watched), self._dims)
        errors = question.judge(outputs, self._oracle.bars, poisoned=True)
        return CallRecord(
            index=index,
            phase="timed",
            dims=self._dims,
            family=_FIRST_FLOAT_AGAIN,
            seconds=max(0.0, seconds),
            outputs=errors,
        )

    def _inputs_of(self, watched: Watched) -> Tensors:
        sums = bytes.fromhex(str(watched.answer["sums"]))
        words = struct.unpack(f"={len(sums) // 8}q", sums)
        self._sums.copy_(torch.tensor(words))
        key = (watched.replay.key, watched.replay.salt)
        self._key.copy_(torch.tensor([_signed(each) for each in key]))
        state = State(
            sums=self._sums.data_ptr(),
            key=self._key.data_ptr(),
            watched=self._watched.data_ptr(),
            kept=(),
        )
        torch.cuda.synchronize()
        for pool in self._pools:
            place = self._tensors[pool.tensor.name].data_ptr()
            self._harness.derive(place, pool, state, watched.link - 1, 0)
        torch.cuda.synchronize()
        return {
            tensor.name: self._tensors[tensor.name].view(*tensor.extents(self._dims))
            for tensor in self._order.kernel.inputs
        }

    def _empty(self, tensor: TensorPlan) -> Tensor:
        dtype = DTYPES[tensor.dtype]
        whole = torch.empty(tensor.vectors * 16 // dtype.itemsize, dtype=dtype, device="cuda")
        return whole[: tensor.count]

    def _allocate(self, size_bytes: int) -> int:
        held = torch.empty(size_bytes, dtype=torch.uint8, device="cuda")
        self._held.append(held)
        return held.data_ptr()


def _pair(taken: Mapping[str, Round]) -> Json:
    """Return a round as the evidence has it.

    Its null is what nothing at all seems to take here; every arm's time holds it, as on a CPU.
    """
    null_s = abs(taken[CANDIDATE].nothing_s)
    times = {arm: max(0.0, each.call_s) + null_s for arm, each in taken.items()}
    return {
        "candidate_s": times[CANDIDATE],
        "baselines_s": {name: took for name, took in times.items() if name != CANDIDATE},
        "null_s": null_s,
    }


def _chain(course: _Course, arm: str) -> Json:
    rounds = [each[arm] for each in course.rounds]
    timer = course.timers[arm]
    return {
        "arm": arm,
        "dims": dict(course.dims),
        "cache": course.cache,
        "links": list(timer.links),
        "call_s": median(each.call_s for each in rounds),
        "call_by_host_s": median(each.call_by_host_s for each in rounds),
        "null_link_s": median(each.null_link_s for each in rounds),
        "write_s": timer.write_s.event_s,
    }


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
