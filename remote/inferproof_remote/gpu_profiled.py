"""What Nsight Compute watches: our launcher making calls of a candidate on one shape.

Runs in the sandbox with the device and prints one JSON line. Its folder holds the call
(`asked.json`), cubins and inputs. What it says is practice: it is never judged.
"""

import ctypes
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from inferproof_remote.cuda_driver import CudaError, Driver, Handle
from inferproof_remote.cuda_launch import LaunchError, Shape
from inferproof_remote.gpu_launcher import Binding, Bound, Step, StreamRecorder
from inferproof_remote.gpu_serve import device_json
from inferproof_remote.job import as_table, as_texts

_WARM_UPS, _ROUNDS, _IN_GRAPH = 3, 7, 20
_MOVES_A_WORD = b"""\
.version 7.0
.target sm_70
.address_size 64
.visible .entry move_a_word(.param .u64 place) {
  .reg .b64 %where;
  .reg .b32 %what;
  ld.param.u64 %where, [place];
  ld.volatile.global.u32 %what, [%where];
  st.volatile.global.u32 [%where], %what;
  ret;
}
"""
_ONE_WARP = Shape(grid=(1, 1, 1), block=(32, 1, 1))


class Call:
    """One call of the candidate on the inputs that lie in `place`."""

    def __init__(self, driver: Driver, place: Path, asked: Mapping[str, object]) -> None:
        cubins = [(place / name).read_bytes() for name in as_texts(asked["cubins"], "cubins")]
        binding = Binding(driver, cubins, asked)
        rng = random.Random(0)  # noqa: S311 (where tensors lie is no secret here)
        bound = Bound(driver, binding, rng)
        addresses = bound.addresses
        for tensor in binding.inputs:
            data = (place / f"{tensor.name}.bin").read_bytes()
            _write(driver, addresses[tensor.name], data)
        for name, zone in bound.zones.items():
            if name not in {each.name for each in binding.inputs}:
                driver.fill(zone.address, 0, zone.size_bytes)
        binding.prepare(addresses)
        self.launch = bound.launch
        self.steps = binding.steps(addresses)
        self.needs = binding.needs()


def main(folder: str, mode: str) -> None:
    """Time the call, or run it once with the hot launches marked for the profiler."""
    place = Path(folder)
    asked = as_table(json.loads((place / "asked.json").read_bytes()), "asked")
    try:
        driver = Driver()
        call = Call(driver, place, asked)
        for _ in range(_WARM_UPS if mode == "time" else 1):
            call.launch(0)
            driver.wait_all()
        if mode == "time":
            told = _timed(driver, call)
        else:
            told = _marked(driver, call.steps, frozenset(map(int, as_texts(asked["hot"], "hot"))))
    except (CudaError, LaunchError) as error:
        told = {"failed": str(error)}
    sys.stdout.write("\n" + json.dumps(told) + "\n")


def _timed(driver: Driver, call: Call) -> dict[str, object]:
    """Return the seconds of a call, of each of its launches, and of as many that do nothing."""
    return {
        "device": device_json(driver),
        "seconds_per_call": _in_graph(driver, call.launch),
        "launches_s": _each(driver, call.steps),
        "floor_s": _floor(driver, len(call.steps)),
        "kernels": [step.name for step in call.steps],
        "needs": call.needs,
    }


def _in_graph(driver: Driver, body: Callable[[Handle], None]) -> float:
    """Return the seconds that `body` takes among others of its kind in one graph."""

    def whole(stream: Handle) -> None:
        for _ in range(_IN_GRAPH):
            body(stream)

    recorder = StreamRecorder(driver)
    replay = recorder.record(whole)
    replay()
    return median(_elapsed(driver, recorder.stream, replay) for _ in range(_ROUNDS)) / _IN_GRAPH


def _elapsed(driver: Driver, stream: Handle, work: Callable[[], None]) -> float:
    first, last = driver.event(), driver.event()
    driver.record(first, stream)
    work()
    driver.record(last, stream)
    driver.wait(stream)
    return driver.seconds_between(first, last)


def _each(driver: Driver, steps: Sequence[Step]) -> list[float]:
    """Return the median seconds of each launch within a call, the gap before it included."""
    stream = driver.stream()
    marks = [driver.event() for _ in range(len(steps) + 1)]
    rounds: list[list[float]] = []
    for _ in range(_ROUNDS):
        driver.record(marks[0], stream)
        for step, mark in zip(steps, marks[1:], strict=True):
            step.launch(stream)
            driver.record(mark, stream)
        driver.wait(stream)
        pairs = pairwise(marks)
        rounds.append([driver.seconds_between(*pair) for pair in pairs])
    return [median(column) for column in zip(*rounds, strict=True)]


def _floor(driver: Driver, launches: int) -> float | None:
    """Return the seconds of `launches` kernels that read and write one word.

    That is what any launch costs at the least; None if this driver compiles none.
    """
    try:
        move = driver.function(driver.load(_MOVES_A_WORD), "move_a_word")
        packed = move.pack([("pointer", driver.allocate(256))])
    except (CudaError, LaunchError):
        return None

    def body(stream: Handle) -> None:
        for _ in range(launches):
            move.launch(_ONE_WARP, stream, packed)

    return _in_graph(driver, body)


def _marked(driver: Driver, steps: Sequence[Step], hot: frozenset[int]) -> dict[str, object]:
    """Run one call; the profiler sees the launches in `hot` only."""
    profiler = ctypes.CDLL("libcuda.so.1")
    for place, step in enumerate(steps):
        if place in hot:
            profiler.cuProfilerStart()
        step.launch(0)
        driver.wait_all()
        if place in hot:
            profiler.cuProfilerStop()
    return {"profiled": sorted(hot)}


def _write(driver: Driver, address: int, data: bytes) -> None:
    buffer = ctypes.create_string_buffer(data, len(data))
    driver.write(address, ctypes.addressof(buffer), len(data))
