"""Memory shared between grader and candidate, where every call finds its tensors elsewhere.

    | guard | tensor | guard | tensor | guard |        at an offset drawn afresh for each call

The candidate can write all of it but can neither shrink nor grow it, so the grader never faults.
"""

import contextlib
import ctypes
import fcntl
import math
import mmap
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferproof_remote.incidents import BenchError

POISON = 0xFF
_GUARD = 0xC3
_GUARD_BYTES = 4096
_ALIGNMENT = 64
_SAME_PLACE_ONE_IN = 2

DTYPE_BYTES: Mapping[str, int] = {
    "bf16": 2,
    "f16": 2,
    "f32": 4,
    "f64": 8,
    "i32": 4,
    "i64": 8,
    "u8": 1,
    "f8e4m3": 1,
    "f8e5m2": 1,
    "ue4m3": 1,
    "ue8m0": 1,
    "f4e2m1x2": 1,
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One argument of a call: row-major and contiguous."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of its elements in bytes."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLayout:
    """The arguments of one call. `params` maps a name to (dtype, value), in contract order.

    `prepare` names the inputs that may be transformed once, untimed; `mutates` those that the call
    may change.
    """

    dims: Mapping[str, int]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    params: Mapping[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    prepare: tuple[str, ...] = ()
    mutates: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Inputs, then outputs."""
        return self.inputs + self.outputs


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Where one tensor lies in the arena."""

    name: str
    offset: int
    nbytes: int

    @property
    def end(self) -> int:
        """Offset just behind it."""
        return self.offset + self.nbytes


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one call's tensors lie; guard zones fill every gap from `start` to `end`."""

    start: int
    end: int
    slots: tuple[TensorSlot, ...]

    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Return the guard zones as (start, end)."""
        edges = [self.start]
        for slot in sorted(self.slots, key=lambda slot: slot.offset):
            edges += [slot.offset, slot.end]
        edges.append(self.end)
        return tuple(zip(edges[::2], edges[1::2], strict=True))


def needed_bytes(tensors: Sequence[TensorSpec]) -> int:
    """Return the bytes that one call with these tensors takes in the arena."""
    return _GUARD_BYTES + sum(_padded(spec.nbytes) + _GUARD_BYTES for spec in tensors)


class Arena:
    """A sealed piece of shared memory, filled by the grader and mapped by the candidate."""

    def __init__(self, size_bytes: int, rng: random.Random) -> None:
        self.size_bytes = -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._rng = rng
        self._placed: dict[tuple[TensorSpec, ...], Placement] = {}
        self.fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size_bytes)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self._map = mmap.mmap(self.fd, self.size_bytes, flags=flags)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._libc = ctypes.CDLL(None)
        self._libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def close(self) -> None:
        """Give the memory back, or leave that to the last view that a caller kept."""
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self._map.close()

    def place(self, tensors: tuple[TensorSpec, ...]) -> Placement:
        """Draw where the next call's tensors lie: elsewhere, or where their like lay before."""
        back = self._rng.randrange(_SAME_PLACE_ONE_IN) == 0
        if back and tensors in self._placed:
            return self._placed[tensors]
        size = needed_bytes(tensors)
        if size > self.size_bytes:
            raise BenchError(f"the arena has {self.size_bytes} bytes; this call needs {size}")
        start = _ALIGNMENT * self._rng.randrange((self.size_bytes - size) // _ALIGNMENT + 1)
        order = list(tensors)
        self._rng.shuffle(order)
        offset = start + _GUARD_BYTES
        slots: dict[str, TensorSlot] = {}
        for spec in order:
            slots[spec.name] = TensorSlot(spec.name, offset, spec.nbytes)
            offset += _padded(spec.nbytes) + _GUARD_BYTES
        placement = Placement(start, offset, tuple(slots[spec.name] for spec in tensors))
        self._placed[tensors] = placement
        return placement

    def view(self, slot: TensorSlot) -> memoryview:
        """Return a tensor's bytes, writable in place."""
        return memoryview(self._map)[slot.offset : slot.end]

    def copy(self, slot: TensorSlot) -> bytearray:
        """Return a tensor's bytes as they are now."""
        return bytearray(self.view(slot))

    def equals(self, slot: TensorSlot, expected: bytearray) -> bool:
        """Whether a tensor still holds these bytes."""
        if slot.nbytes == 0:
            return True
        pointer = (ctypes.c_char * slot.nbytes).from_buffer(expected)
        return self._libc.memcmp(self._base + slot.offset, pointer, slot.nbytes) == 0

    def poison(self, slot: TensorSlot) -> None:
        """Fill a tensor with the byte that no honest output is made of."""
        ctypes.memset(self._base + slot.offset, POISON, slot.nbytes)

    def is_poison(self, slot: TensorSlot) -> bool:
        """Whether not one byte of a poisoned tensor was written."""
        return self._is_filled(slot.offset, slot.end, POISON)

    def arm_guards(self, placement: Placement) -> None:
        """Fill the guard zones with their pattern."""
        for start, end in placement.gaps():
            ctypes.memset(self._base + start, _GUARD, end - start)

    def guards_hold(self, placement: Placement) -> bool:
        """Whether no byte outside the tensors was written."""
        return all(self._is_filled(start, end, _GUARD) for start, end in placement.gaps())

    def _is_filled(self, start: int, end: int, value: int) -> bool:
        """Whether [start, end) is all `value`: its first byte is, and each equals the next."""
        if start == end:
            return True
        first = self._base + start
        same = self._libc.memcmp(first, first + 1, end - start - 1) == 0
        return same and self._map[start] == value


def _padded(size_bytes: int) -> int:
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
