"""The process that launches a candidate's device code; it holds no reference and no future input.

All host code here is ours: the candidate is a cubin and numbers. What its device code may touch
lies at random addresses between guard zones, in a context that no other process shares.
"""

import ctypes
import random
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from inferproof_remote import gpu_memory
from inferproof_remote.cuda_driver import CudaError, Driver, Function, Handle
from inferproof_remote.cuda_launch import LaunchError, Packed, Scalar, Shape
from inferproof_remote.gpu_chain import SLOTS, Chain, Harness
from inferproof_remote.gpu_memory import GUARD_BYTE, Zone
from inferproof_remote.gpu_serve import (
    ChainTimer,
    device_json,
    rows_of,
    serve,
    tensor_plans,
    whole_of,
)
from inferproof_remote.gpu_wire import Json, SharedBytes, Wire
from inferproof_remote.job import as_table
from inferproof_remote.launches import PREPARED, WORKSPACE, Argument, Resolved, parse_resolved
from inferproof_remote.tensor_maps import TensorMap, map_bytes, parse_map

POISON = 0xFF
_KEPT_BYTES = 8 << 30


class Binding:
    """Fresh modules for one shape, and what they launch."""

    def __init__(
        self,
        driver: Driver,
        cubins: Sequence[bytes],
        spec: Mapping[str, object],
        *,
        fills: bool = True,
    ) -> None:
        self._driver = driver
        self._fills = fills
        self._prepare = tuple(parse_resolved(each) for each in rows_of(spec["prepare"]))
        self._launches = tuple(parse_resolved(each) for each in rows_of(spec["launches"]))
        self._maps = {
            name: parse_map(each) for name, each in as_table(spec["maps"], "maps").items()
        }
        self.inputs = tensor_plans(spec["inputs"])
        self.outputs = tensor_plans(spec["outputs"])
        self.scratch = {
            name: size
            for name in (WORKSPACE, PREPARED)
            if (size := whole_of(spec, f"{name}_bytes"))
        }
        sizes = {each.name: each.size_bytes for each in (*self.inputs, *self.outputs)}
        _check_reach(self._maps, sizes | self.scratch)
        self.results = (*self.outputs, *(each for each in self.inputs if each.mutated))
        used = sorted({each.module for each in (*self._prepare, *self._launches)})
        self._modules = {number: driver.load(cubins[number]) for number in used}
        self._functions = {
            (each.module, each.kernel): driver.function(self._modules[each.module], each.kernel)
            for each in (*self._prepare, *self._launches)
        }
        for launch in (*self._prepare, *self._launches):
            self._functions[launch.module, launch.kernel].prepare(_shape(launch))

    def pack(
        self, addresses: Mapping[str, int], *, without: str | None = None
    ) -> Callable[[Handle], None]:
        """Return what launches one call on tensors at these addresses, but for one kernel."""
        steps = [each for each in self.steps(addresses) if each.name != without]

        def launch_all(stream: Handle) -> None:
            for step in steps:
                step.launch(stream)

        return launch_all

    def steps(self, addresses: Mapping[str, int]) -> "list[Step]":
        """Return the launches of one call on tensors at these addresses, in order."""
        return [self._step(each, addresses) for each in self._launches]

    def prepare(self, addresses: Mapping[str, int]) -> None:
        """Put the launches that come before all calls into the context's own stream."""
        if PREPARED in self.scratch and self._fills:
            self._driver.fill(addresses[PREPARED], POISON, self.scratch[PREPARED])
        for each in self._prepare:
            self._step(each, addresses).launch(0)

    def _step(self, launch: Resolved, addresses: Mapping[str, int]) -> "Step":
        function = self._functions[launch.module, launch.kernel]
        maps = {
            name: self._driver.encode(each, addresses[each.tensor])
            for name, each in self._maps.items()
            if ("map", name) in launch.args
        }
        return Step(function, _shape(launch), function.pack(_values(launch.args, addresses, maps)))

    def needs(self) -> list[Json]:
        """Return what each launched kernel needs of a multiprocessor."""
        functions = [self._functions[each.module, each.kernel] for each in self._launches]
        return [{"kernel": each.name, **each.needs} for each in functions]

    def release(self) -> None:
        """Let go of its modules."""
        for module in self._modules.values():
            self._driver.unload(module)


class Step:
    """One launch of a call."""

    def __init__(self, function: Function, shape: Shape, packed: Packed) -> None:
        self.name = function.name
        self.shape = shape
        self._function = function
        self._packed = packed

    def launch(self, stream: Handle) -> None:
        """Put it into `stream`."""
        self._function.launch(self.shape, stream, self._packed)


class Bound:
    """A binding with one set of tensors, for calls that are checked."""

    def __init__(self, driver: Driver, binding: Binding, rng: random.Random) -> None:
        self.binding = binding
        sizes = {each.name: each.size_bytes for each in (*binding.inputs, *binding.outputs)}
        sizes |= binding.scratch
        self.zones = {name: gpu_memory.make_zone(driver, size, rng) for name, size in sizes.items()}
        self.addresses = {name: zone.address for name, zone in self.zones.items()}
        self.launch = binding.pack(self.addresses)

    @property
    def size_bytes(self) -> int:
        """Device memory held."""
        return sum(zone.whole_bytes for zone in self.zones.values())

    def release(self, driver: Driver) -> None:
        """Give all of it back."""
        for zone in self.zones.values():
            gpu_memory.free_zone(driver, zone)
        self.binding.release()


class StreamRecorder:
    """Records and replays in one stream of the driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.stream = driver.stream()

    def record(self, body: Callable[[Handle], None]) -> Callable[[], None]:
        """Return what replays the launches of `body`."""
        self._driver.begin_capture(self.stream)
        try:
            body(self.stream)
        finally:
            graph = self._driver.end_capture(self.stream)
        return lambda: self._driver.replay(graph, self.stream)


class Launcher:
    """Answers one request at a time."""

    def __init__(self, shared: SharedBytes) -> None:
        self._shared = shared
        self._driver = Driver()
        self._driver.forget_persisting_lines()
        self._marks = self._driver.event(), self._driver.event()
        self._found = self._driver.allocate(256)
        self._bound: dict[str, Bound] = {}
        self._timers: dict[str, ChainTimer] = {}
        self._rng = random.Random()  # noqa: S311 (seeded by the grader)
        self._cubins: tuple[bytes, ...] = ()
        self._harness: Harness | None = None

    def answer(self, request: Mapping[str, object]) -> Json:
        """Return the answer to one request."""
        match request["do"]:
            case "open":
                return self._open(request)
            case "call":
                return self._call(request)
            case "chain":
                return self._chain(request)
            case "time":
                return self._timers[str(request["id"])].answer(request)
            case other:
                raise LaunchError(f"no such request: {other!r}")

    def _open(self, request: Mapping[str, object]) -> Json:
        at = whole_of(request, "harness_bytes")
        self._harness = Harness(self._driver, bytes(self._shared.view(0, at)))
        cubins: list[bytes] = []
        for size in cast("list[int]", request["cubins_bytes"]):
            cubins.append(bytes(self._shared.view(at, size)))
            at += size
        self._cubins = tuple(cubins)
        self._rng.seed(whole_of(request, "seed"))
        return {"device": device_json(self._driver)}

    def _call(self, request: Mapping[str, object]) -> Json:
        """Run one call on poisoned outputs; say what was touched that must not be."""
        bound = self._bind(request)
        binding, zones, driver = bound.binding, bound.zones, self._driver
        offsets = as_table(request["offsets"], "offsets")
        self._write_inputs(bound, offsets, fixed=True)
        binding.prepare(bound.addresses)  # before there is anything that it may not see
        driver.wait_all()
        self._write_inputs(bound, offsets, fixed=False)
        for name in (*(each.name for each in binding.outputs), WORKSPACE):
            if name in zones:
                driver.fill(zones[name].address, POISON, zones[name].size_bytes)
        driver.wait_all()
        driver.record(self._marks[0], 0)
        without = request.get("without")
        launch = bound.launch
        if without is not None:
            launch = binding.pack(bound.addresses, without=str(without))
        launch(0)
        driver.record(self._marks[1], 0)
        driver.wait_all()
        mutated = self._mutated(bound, offsets)
        for tensor in binding.results:
            target = self._shared.address + whole_of(offsets, tensor.name)
            driver.read(target, zones[tensor.name].address, tensor.size_bytes)
        return {
            "seconds": driver.seconds_between(*self._marks),
            "guards": self._broken_guards(zones, padded=False),
            "mutated": mutated,
            "needs": binding.needs(),
        }

    def _write_inputs(self, bound: Bound, offsets: Mapping[str, object], *, fixed: bool) -> None:
        for tensor in bound.binding.inputs:
            if tensor.fixed is fixed:
                source = self._shared.address + whole_of(offsets, tensor.name)
                self._driver.write(bound.addresses[tensor.name], source, tensor.size_bytes)

    def _bind(self, request: Mapping[str, object]) -> Bound:
        """Return the shape's binding, so that a known address comes again with other contents."""
        key = str(request["shape"])
        if key not in self._bound:
            while sum(each.size_bytes for each in self._bound.values()) > _KEPT_BYTES:
                oldest = next(iter(self._bound))
                self._bound.pop(oldest).release(self._driver)
            binding = Binding(self._driver, self._cubins, request)
            self._bound[key] = Bound(self._driver, binding, self._rng)
        return self._bound[key]

    def _broken_guards(self, zones: Mapping[str, Zone], *, padded: bool) -> dict[str, int]:
        broken: dict[str, int] = {}
        for name, zone in zones.items():
            found = (ctypes.c_uint64 * 1)(0)
            where, size = ctypes.addressof(found), ctypes.sizeof(found)
            self._driver.write(self._found, where, size)
            for address, length in zone.guards(padded=padded):
                self._ready().count_other(address, length, GUARD_BYTE, self._found)
            self._driver.read(where, self._found, size)
            if found[0]:
                broken[name] = int(found[0])
        return broken

    def _mutated(self, bound: Bound, offsets: Mapping[str, object]) -> list[str]:
        changed: list[str] = []
        compare = ctypes.CDLL(None).memcmp
        for tensor in bound.binding.inputs:
            if tensor.mutated:
                continue
            now = ctypes.create_string_buffer(tensor.size_bytes)
            zone = bound.zones[tensor.name]
            self._driver.read(ctypes.addressof(now), zone.address, tensor.size_bytes)
            was = ctypes.c_void_p(self._shared.address + whole_of(offsets, tensor.name))
            if compare(now, was, ctypes.c_size_t(tensor.size_bytes)) != 0:
                changed.append(tensor.name)
        return changed

    def _chain(self, request: Mapping[str, object]) -> Json:
        """Lay out a chain of the candidate's calls on one shape."""
        for bound in self._bound.values():
            bound.release(self._driver)
        self._bound.clear()
        binding = Binding(self._driver, self._cubins, request)
        zones: dict[str, Zone] = {}
        places = self._places(binding, zones)
        calls = [binding.pack(place) for place in places]

        def operation(slot: int, stream: Handle) -> Sequence[int]:
            calls[slot](stream)
            return [places[slot][each.name] for each in binding.results]

        chain = Chain(
            self._ready(),
            StreamRecorder(self._driver),
            inputs=binding.inputs,
            outputs=binding.results,
            places=places,
            seed=whole_of(request, "seed"),
            allocate=lambda size: self._driver.map_apart(size, self._rng)[0],
            longest=whole_of(request, "longest"),
        )
        binding.prepare(places[0])
        self._driver.wait_all()
        self._timers[str(request["id"])] = ChainTimer(
            *(chain, operation, self._driver, self._shared, binding.results),
            guards=lambda: self._broken_guards(zones, padded=True),
        )
        return {}

    def _places(self, binding: Binding, zones: dict[str, Zone]) -> list[dict[str, int]]:
        """Return where each slot's tensors lie; note every zone that is made for them."""

        def zone_at(name: str, size_bytes: int) -> int:
            zones[name] = gpu_memory.make_zone(self._driver, size_bytes, self._rng)
            return zones[name].address

        common = {
            each.name: zone_at(each.name, each.size_bytes) for each in binding.inputs if each.fixed
        }
        common |= {name: zone_at(name, size) for name, size in binding.scratch.items()}
        changing = [each for each in (*binding.inputs, *binding.outputs) if not each.fixed]
        return [
            common | {t.name: zone_at(f"{t.name} {slot}", t.size_bytes) for t in changing}
            for slot in range(SLOTS)
        ]

    def _ready(self) -> Harness:
        if self._harness is None:
            raise LaunchError("nothing was opened")
        return self._harness


def main(socket_fd: int, shared_fd: int, shared_bytes: int) -> None:
    """Serve the grader at the other end of a socket."""
    wire = Wire(socket.socket(fileno=socket_fd))
    try:
        launcher = Launcher(SharedBytes(shared_fd, shared_bytes))
    except CudaError as error:
        wire.send({"failed": str(error), "name": error.name})
        return
    wire.send({"ready": True})
    serve(wire, launcher.answer)


def _check_reach(maps: Mapping[str, TensorMap], sizes: Mapping[str, int]) -> None:
    """Raise LaunchError if a map reaches beyond its tensor."""
    for name, each in maps.items():
        if each.tensor not in sizes or map_bytes(each) > sizes[each.tensor]:
            raise LaunchError(f"tensor map {name} reaches beyond {each.tensor}")


def _values(
    args: Sequence[Argument], addresses: Mapping[str, int], maps: Mapping[str, bytes]
) -> list[Scalar]:
    values: list[Scalar] = []
    for kind, value in args:
        if kind == "map":
            values.append(("map", maps[str(value)]))
            continue
        if kind == "tensor":
            if str(value) not in addresses:
                raise LaunchError(f"there is no {value}: its size is 0")
            values.append(("pointer", addresses[str(value)]))
        elif kind == "integer":
            values.append(("integer", int(value)))
        else:
            values.append(("float", float(value)))
    return values


def _shape(launch: Resolved) -> Shape:
    return Shape(
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        cluster=launch.cluster,
        cooperative=launch.cooperative,
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
