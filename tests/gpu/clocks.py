"""Compare clocks on the machine with the GPU: a call's time as graded, in one process, and bare.

    python3 tests/gpu/clocks.py JOB name=extent,... [name=extent,... ...]
    ncu … python3 tests/gpu/clocks.py --once JOB name=extent,...

`graded` is a chain behind the sandboxed launcher, `trusted` the same chain in this process, `bare`
a graph of the same launches over the same slots and nothing else.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2] / "remote"))

from inferproof_remote import build_cuda, gpu_memory
from inferproof_remote.cuda_driver import Driver, Handle
from inferproof_remote.gpu_chain import SLOTS, Harness, TensorPlan, pool_seed
from inferproof_remote.gpu_grade import compile_harness
from inferproof_remote.gpu_launcher import Binding, Launcher, StreamRecorder
from inferproof_remote.gpu_layout import tensor_rows
from inferproof_remote.gpu_process import DeviceProcess
from inferproof_remote.gpu_timing import LONGEST, ArmTimer, Asks
from inferproof_remote.gpu_wire import Json, SharedBytes
from inferproof_remote.job import as_table
from inferproof_remote.kernel import Kernel, parse_kernel
from inferproof_remote.launches import parse_asked, resolve
from inferproof_remote.stream import Stream

ROUNDS = 15
LIMIT_S = 60.0


class Here:
    """A launcher in this very process."""

    def __init__(self) -> None:
        self.shared = SharedBytes.make(1 << 26)
        self._launcher = Launcher(self.shared)

    def ask(self, request: Mapping[str, object], timeout_s: float) -> Mapping[str, object]:
        """Return the answer to a request."""
        del timeout_s
        return self._launcher.answer(json.loads(json.dumps(request)))


def main() -> None:
    """Print one row of microseconds for each shape."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--once", action="store_true")
    parser.add_argument("job", type=Path)
    parser.add_argument("shapes", nargs="+")
    given = parser.parse_args()
    spec = as_table(
        json.loads((given.job / "job.json").read_text(encoding="utf-8"))["spec"], "spec"
    )
    table = {key: as_table(spec[key], key) for key in ("dims_fixed", "dims_max")}
    sizes = {key: {n: int(str(v)) for n, v in each.items()} for key, each in table.items()}
    kernel = parse_kernel(spec["contract"], fixed=sizes["dims_fixed"], most=sizes["dims_max"])
    cubin = (given.job / "out" / "files" / f"{build_cuda.native_arch()}.cubin").read_bytes()
    for text in given.shapes:
        asked = {name: int(size) for name, size in (each.split("=") for each in text.split(","))}
        dims = {name: asked.get(name, extent.high) for name, extent in kernel.extents.items()}
        request = _request(kernel, spec, dims)
        if given.once:
            _bare(request, cubin, replays=1)
        else:
            print(json.dumps(_row(given.job.name, text, request, cubin)), flush=True)


def _row(name: str, shape: str, request: Json, cubin: bytes) -> Json:
    harness = compile_harness()
    row: Json = {"kernel": name, "shape": shape}
    with ExitStack() as stack:
        apart = stack.enter_context(DeviceProcess("gpu_launcher", shared_bytes=1 << 26))
        apart.start_apart("clocks")
        here = Here()
        for label, process, shared in (
            ("graded", apart, apart.shared),
            ("trusted", here, here.shared),
        ):
            shared.view(0, len(harness) + len(cubin))[:] = harness + cubin
            process.ask(
                {
                    "do": "open",
                    "harness_bytes": len(harness),
                    "cubins_bytes": [len(cubin)],
                    "seed": 7,
                },
                LIMIT_S,
            )
            process.ask(
                request | {"do": "chain", "id": "a", "seed": 11, "longest": LONGEST}, LIMIT_S
            )
            row |= _times(label, process)
    bare = [_bare(request, cubin, replays=9) for _ in range(3)]
    return row | {"bare_us": round(1e6 * median(bare), 3)}


def _times(label: str, process: Asks) -> Json:
    found: Json = {}
    for cache in ("warm", "cold"):
        stream = Stream(label.encode() * 8, cache)
        timer = ArmTimer(process, "a", cache, stream=stream, limit_s=LIMIT_S)
        rounds = [timer.time(again=True) for _ in range(ROUNDS)]
        calls = sorted(each.call_s for each in rounds)
        spread = (calls[-4] - calls[3]) / median(calls)
        found[f"{label}_{cache}_us"] = round(1e6 * median(calls), 3)
        found[f"{label}_{cache}_spread"] = round(spread, 4)
        found[f"{label}_{cache}_by_host_us"] = round(
            1e6 * median(each.call_by_host_s for each in rounds), 3
        )
        found[f"{label}_{cache}_nothing_us"] = round(
            1e6 * median(abs(each.nothing_s) for each in rounds), 3
        )
    return found


def _bare(request: Json, cubin: bytes, *, replays: int) -> float:
    """Return seconds a launch in a graph of launches alone, over the slots of a chain."""
    driver, rng = Driver(), random.Random(3)
    binding = Binding(driver, [cubin], json.loads(json.dumps(request)))
    tensors = (*binding.inputs, *binding.outputs)
    fixed = {each.name: _place(driver, each.size_bytes, rng) for each in tensors if each.fixed}
    fixed |= {name: _place(driver, size, rng) for name, size in binding.scratch.items()}
    slots = [
        fixed | {t.name: _place(driver, t.size_bytes, rng) for t in tensors if not t.fixed}
        for _ in range(SLOTS)
    ]
    _draw(driver, binding.inputs, slots)
    binding.prepare(slots[0])
    driver.wait_all()
    calls = [binding.pack(slot) for slot in slots]
    recorder = StreamRecorder(driver)
    links = (4, 8) if replays == 1 else (40, 160)
    graphs = [recorder.record(_Repeat(calls, count)) for count in links]
    first, last = driver.event(), driver.event()
    taken: list[list[float]] = [[], []]
    for _ in range(replays + 1):
        for graph, times in zip(graphs, taken, strict=True):
            driver.record(first, recorder.stream)
            graph()
            driver.record(last, recorder.stream)
            driver.wait(recorder.stream)
            times.append(driver.seconds_between(first, last))
    return (median(taken[1][1:]) - median(taken[0][1:])) / (links[1] - links[0])


def _draw(driver: Driver, inputs: Sequence[TensorPlan], slots: Sequence[Mapping[str, int]]) -> None:
    """Give every slot inputs, as a chain does: how much work there is may hang on them."""
    harness = Harness(driver, compile_harness())
    for number, tensor in enumerate(inputs):
        for place in {slot[tensor.name] for slot in slots}:
            harness.draw(place, tensor, pool_seed(11, number), 0)
    driver.wait_all()


class _Repeat:
    """Puts calls into a stream, slot after slot."""

    def __init__(self, calls: list[Callable[[Handle], None]], count: int) -> None:
        self._calls = calls
        self._count = count

    def __call__(self, stream: Handle) -> None:
        """Put all of them in."""
        for number in range(self._count):
            self._calls[number % SLOTS](stream)


def _place(driver: Driver, size_bytes: int, rng: random.Random) -> int:
    return gpu_memory.make_zone(driver, size_bytes, rng).address


def _request(kernel: Kernel, spec: Mapping[str, object], dims: Mapping[str, int]) -> Json:
    asked = parse_asked(as_table(spec["manifest"], "manifest"))
    sms = Driver().describe().attributes["multiprocessors"]
    plan = resolve(asked, kernel, dims, sms=sms)
    return {
        **plan.to_json(),
        **tensor_rows(kernel, dims),
    }


if __name__ == "__main__":
    main()
