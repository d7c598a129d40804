"""Chained calls in a graph: no link can start before the last output byte of the link before.

    real   [flush]  kernel          sum over all outputs   next inputs by key and sum
    null   [flush]  write outputs   sum over all outputs   next inputs by key and sum
    write  [flush]  write outputs          (what the null chain has in the kernel's place)

Each is recorded with two numbers of links. With slopes in seconds a link, a call takes
real - null + write, less the flush alone where the cache is cold.
"""

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from inferproof_remote.cuda_driver import Driver, Function, Handle
from inferproof_remote.cuda_kernels import (
    ITEM_BYTES,
    KERNELS,
    KINDS,
    STRUCTURED,
    UNIFORM_KIND,
    VECTOR_BYTES,
)
from inferproof_remote.cuda_launch import Scalar, Shape

SLOTS = 4
POOL_BYTES = 1 << 30
MOST_ENTRIES, LEAST_ENTRIES = 64, 4
NOT_WATCHED = (1 << 64) - 1
_THREADS = 256
_BLOCKS_PER_MULTIPROCESSOR = 8
_VECTORS_PER_THREAD = 4
_HOLD_CYCLES = 300_000
_WORD = 1 << 64

Kind: TypeAlias = Literal["real", "null", "write", "flush"]
Allocate: TypeAlias = Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlan:
    """One argument of the calls; `fixed` ones are the same in all links, as weights are.

    A `mutated` one is an input that the call changes: it is derived, and then judged as an output.
    """

    name: str
    dtype: str
    count: int
    fixed: bool = False
    mutated: bool = False
    span: tuple[int, int] | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements."""
        return self.count * ITEM_BYTES[self.dtype]

    @property
    def vectors(self) -> int:
        """Bytes in units of our kernels' accesses, the last one padded."""
        return -(-self.size_bytes // VECTOR_BYTES)


class Operation(Protocol):
    """What is timed: puts one call into the stream; returns where its outputs are."""

    def __call__(self, slot: int, stream: Handle) -> Sequence[int]:
        """Put the call on the inputs of `slot` into the stream that is recorded."""
        ...


class Recorder(Protocol):
    """Makes a graph of what `body` puts into the stream it is given."""

    def record(self, body: Callable[[Handle], None]) -> Callable[[], None]:
        """Return what replays it."""
        ...

    @property
    def stream(self) -> Handle:
        """The stream that replays run in."""
        ...


class Harness:
    """Our own kernels, loaded in one context."""

    def __init__(self, driver: Driver, cubin: bytes) -> None:
        self.driver = driver
        module = driver.load(cubin)
        self._kernels: Mapping[str, Function] = {
            name: driver.function(module, name) for name in KERNELS
        }
        attributes = driver.describe().attributes
        self._most_blocks = attributes["multiprocessors"] * _BLOCKS_PER_MULTIPROCESSOR
        self.l2_bytes = attributes["l2_bytes"]

    def draw(self, address: int, tensor: TensorPlan, seed: int, stream: Handle) -> None:
        """Fill a tensor with values that `seed` decides."""
        low, high = tensor.span or (0, 2)
        span = max(1, high - low)
        is_uniform = tensor.span is not None and tensor.dtype == "f32"
        kind = UNIFORM_KIND if is_uniform else KINDS[tensor.dtype]
        self._run(
            *("ip_draw", tensor.count, stream),
            [_at(address), *map(_whole, (tensor.count, seed, kind, low, span))],
        )

    def sum_up(
        self, outputs: Sequence["Output"], state: "State", link: int, stream: Handle
    ) -> None:
        """Add every byte of the outputs to the sum of a link; keep them if it is watched."""
        base = 0
        for output, kept in zip(outputs, state.kept, strict=True):
            vectors = output.tensor.vectors
            self._run(
                *("ip_sum", vectors, stream),
                [
                    *(_at(output.address), _whole(vectors), _whole(base), _at(state.sums)),
                    *(_at(state.key), _whole(link), _at(state.watched), _at(kept)),
                ],
            )
            base += vectors

    def derive(self, place: int, pool: "Pool", state: "State", link: int, stream: Handle) -> None:
        """Choose the input that follows a link."""
        tensor = pool.tensor
        item = ITEM_BYTES[tensor.dtype]
        self._run(
            *("ip_next", tensor.vectors, stream),
            [
                *(_at(pool.address), _whole(tensor.vectors), _whole(pool.entries), _at(place)),
                *(_at(state.sums), _at(state.key), _whole(link), _whole(pool.number)),
                *(_whole(item.bit_length() - 1), _whole(int(tensor.dtype in STRUCTURED))),
            ],
        )

    def write_over(self, outputs: Sequence["Output"], stream: Handle) -> None:
        """Write as many bytes as the candidate would."""
        for output in outputs:
            vectors = output.tensor.vectors
            self._run(
                *("ip_write", vectors, stream),
                [_at(output.address), _whole(vectors), _whole(-1)],
            )

    def flush(self, buffer: int, size_bytes: int, sink: int, stream: Handle) -> None:
        """Read more than the cache holds, so that nothing else is left in it."""
        vectors = size_bytes // VECTOR_BYTES
        self._run("ip_flush", vectors, stream, [_at(buffer), _whole(vectors), _at(sink)])

    def hold(self, stream: Handle) -> None:
        """Keep the device busy while the host hands over what comes next.

        Else the time between an event and the first kernel behind it is the host's, and varies.
        """
        self._run("ip_hold", 1, stream, [_whole(_HOLD_CYCLES)])

    def count_other(self, address: int, size_bytes: int, byte: int, found: int) -> None:
        """Add how many bytes differ from `byte` to the number at `found`."""
        if size_bytes > 0:
            stream = 0
            self._run(
                *("ip_differ", size_bytes, stream),
                [_at(address), _whole(size_bytes), _whole(byte), _at(found)],
            )

    def _run(self, name: str, work: int, stream: Handle, values: Sequence[Scalar]) -> None:
        blocks = -(-work // (_THREADS * _VECTORS_PER_THREAD))
        shape = Shape(grid=(max(1, min(blocks, self._most_blocks)), 1, 1), block=(_THREADS, 1, 1))
        kernel = self._kernels[name]
        kernel.launch(shape, stream, kernel.pack(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Entries to choose an input from; `number` tells the tensors of a call apart."""

    tensor: TensorPlan
    address: int
    entries: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a chain keeps what it knows, in device memory."""

    sums: int
    key: int
    watched: int
    kept: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a call and where it was written."""

    address: int
    tensor: TensorPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One replay by two clocks: the device's events and the host's."""

    event_s: float
    host_s: float


def pool_entries(tensor: TensorPlan) -> int:
    """Return how many entries the pool of a tensor has; decided by its size alone."""
    fitting = POOL_BYTES // max(1, tensor.vectors * VECTOR_BYTES)
    return max(LEAST_ENTRIES, min(MOST_ENTRIES, fitting))


def draw_pool(
    harness: Harness, tensor: TensorPlan, number: int, seed: int, allocate: Allocate
) -> Pool:
    """Return a pool of the tensor's inputs, drawn on the device from `seed`."""
    entries = pool_entries(tensor)
    size = tensor.vectors * VECTOR_BYTES
    whole = TensorPlan(
        name=tensor.name,
        dtype=tensor.dtype,
        count=entries * size // ITEM_BYTES[tensor.dtype],
        span=tensor.span,
    )
    address = allocate(entries * size)
    harness.draw(address, whole, pool_seed(seed, number), 0)
    return Pool(tensor=tensor, address=address, entries=entries, number=number)


def pool_seed(seed: int, number: int) -> int:
    """Return the seed of one tensor's pool."""
    return (seed + number * 0x9E3779B97F4A7C15) % _WORD


class Chain:
    """All graphs of one operation on one shape."""

    def __init__(
        self,
        harness: Harness,
        recorder: Recorder,
        *,
        inputs: Sequence[TensorPlan],
        outputs: Sequence[TensorPlan],
        places: Sequence[Mapping[str, int]],
        seed: int,
        allocate: Allocate,
        longest: int,
    ) -> None:
        self._harness = harness
        self._driver = harness.driver
        self._recorder = recorder
        self._outputs = tuple(outputs)
        self._places = tuple(places)
        self._longest = longest
        self._flush_bytes = 2 * harness.l2_bytes
        self._flush_from = allocate(self._flush_bytes)
        self._sink = allocate(256)
        self._pools = tuple(
            draw_pool(harness, tensor, number, seed, allocate)
            for number, tensor in enumerate(inputs)
            if not tensor.fixed
        )
        for number, tensor in enumerate(inputs):
            if tensor.fixed:
                harness.draw(places[0][tensor.name], tensor, pool_seed(seed, number), 0)
        self.kept = tuple(allocate(each.vectors * VECTOR_BYTES) for each in outputs)
        self._state = State(
            sums=allocate(8 * (longest + 1)),
            key=allocate(256),
            watched=allocate(256),
            kept=self.kept,
        )
        self._graphs: dict[tuple[Kind, int, bool], Callable[[], None]] = {}
        self._marks = self._driver.event(), self._driver.event()
        self._driver.wait_all()

    def time(
        self,
        kind: Kind,
        links: int,
        *,
        cold: bool,
        operation: Operation,
        key: tuple[int, int],
        watched: int = NOT_WATCHED,
    ) -> Timing:
        """Replay one graph, made on first use, and return how long it took."""
        graph = self._graphs.get((kind, links, cold))
        if graph is None:
            graph = self._record(kind, links, cold, operation)
            self._graphs[kind, links, cold] = graph
            self._set(key, NOT_WATCHED)
            graph()  # the first replay also uploads it
            self._driver.wait(self._recorder.stream)
        self._set(key, watched)
        stream, (first, last) = self._recorder.stream, self._marks
        self._harness.hold(stream)
        self._driver.record(first, stream)
        graph()
        self._driver.record(last, stream)
        began = self._seen(first)
        host_s = self._seen(last) - began
        self._driver.wait(stream)
        return Timing(event_s=self._driver.seconds_between(first, last), host_s=host_s)

    def _seen(self, mark: Handle) -> float:
        """Return when the host sees that a mark was passed.

        The device waits at the first until all is handed over, so that its clock starts there too.
        """
        while not self._driver.has_happened(mark):
            pass
        return time.perf_counter()

    def sums(self) -> bytes:
        """Return the sum of each link of the last replay; the first is of none."""
        found = (ctypes.c_uint64 * (self._longest + 1))()
        self._driver.read(ctypes.addressof(found), self._state.sums, ctypes.sizeof(found))
        return bytes(found)

    def _set(self, key: tuple[int, int], watched: int) -> None:
        driver, state = self._driver, self._state
        driver.fill(state.sums, 0, 8 * (self._longest + 1))
        for place, values in ((state.key, key), (state.watched, (watched,))):
            words = (ctypes.c_uint64 * len(values))(*values)
            driver.write(place, ctypes.addressof(words), ctypes.sizeof(words))
        driver.wait_all()

    def _record(
        self, kind: Kind, links: int, cold: bool, operation: Operation
    ) -> Callable[[], None]:
        def body(stream: Handle) -> None:
            if kind in ("real", "null"):
                self._derive(0, stream)
            for link in range(1, links + 1):
                self._link(kind, link, cold, operation, stream)

        return self._recorder.record(body)

    def _link(
        self, kind: Kind, link: int, cold: bool, operation: Operation, stream: Handle
    ) -> None:
        slot = (link - 1) % SLOTS
        if cold or kind == "flush":
            self._harness.flush(self._flush_from, self._flush_bytes, self._sink, stream)
        if kind == "flush":
            return
        if kind == "real":
            addresses = operation(slot, stream)
        else:
            addresses = [self._places[slot][each.name] for each in self._outputs]
        written = [Output(*each) for each in zip(addresses, self._outputs, strict=True)]
        if kind != "real":
            self._harness.write_over(written, stream)
        if kind != "write":
            self._harness.sum_up(written, self._state, link, stream)
            self._derive(link, stream)

    def _derive(self, link: int, stream: Handle) -> None:
        for pool in self._pools:
            place = self._places[link % SLOTS][pool.tensor.name]
            self._harness.derive(place, pool, self._state, link, stream)


def _at(address: int) -> Scalar:
    return ("pointer", address)


def _whole(number: int) -> Scalar:
    """Return an integer as our kernels take it; 64 bits wrap around as theirs do."""
    wrapped = number % _WORD
    return ("integer", wrapped - _WORD if wrapped >= _WORD // 2 else wrapped)
