"""A launch in the driver's own form: sizes, attributes, and arguments that fit the kernel."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from inferproof_remote.tensor_maps import MAP_BYTES

_COOPERATIVE, _CLUSTER = 2, 4

Scalar: TypeAlias = tuple[Literal["pointer", "integer", "float", "map"], int | float | bytes]
Size3: TypeAlias = tuple[int, int, int]


class LaunchError(Exception):
    """A launch cannot be made as the candidate asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many threads run a kernel, and what they share."""

    grid: Size3
    block: Size3
    shared_bytes: int = 0
    cluster: Size3 | None = None
    cooperative: bool = False


class _LaunchAttribute(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("value", ctypes.c_uint * 16),
    ]


class LaunchConfig(ctypes.Structure):
    """What the driver takes; it points to attributes that it keeps alive."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    ]


def launch_config(shape: Shape, stream: int) -> LaunchConfig:
    """Return `shape` as the driver takes it, to be launched in `stream`."""
    attributes = _attributes(shape)
    return LaunchConfig(
        grid=shape.grid,
        block=shape.block,
        shared_bytes=shape.shared_bytes,
        stream=stream,
        attributes=attributes,
        attribute_count=len(attributes),
    )


_Cell: TypeAlias = (
    ctypes.c_uint64
    | ctypes.c_int64
    | ctypes.c_int32
    | ctypes.c_float
    | ctypes.c_double
    | ctypes.Array[ctypes.c_char]
)


class Packed:
    """The arguments of one launch, as the driver takes them."""

    def __init__(self, values: Sequence[Scalar], sizes: Sequence[int], *, name: str) -> None:
        """Fit `values` to parameters of `sizes` bytes.

        Raises:
            LaunchError: their number, a kind or a size does not fit.
        """
        if len(values) != len(sizes):
            what = f"takes {len(sizes)} arguments, {len(values)} are given"
            raise LaunchError(f"kernel {name} {what}")
        self._cells = tuple(  # what the pointers point to
            _cell(value, size, f"argument {place} of kernel {name}")
            for place, (value, size) in enumerate(zip(values, sizes, strict=True))
        )
        addresses = map(ctypes.addressof, self._cells)
        self.pointers = (ctypes.c_void_p * max(1, len(self._cells)))(*addresses)


def _cell(value: Scalar, size: int, where: str) -> _Cell:
    match value, size:
        case ("pointer", int(address)), 8:
            return ctypes.c_uint64(address)
        case ("integer", int(number)), 8:
            return ctypes.c_int64(number)
        case ("integer", int(number)), 4 if -(1 << 31) <= number < 1 << 31:
            return ctypes.c_int32(number)
        case ("float", int() | float() as number), 4:
            return ctypes.c_float(number)
        case ("float", int() | float() as number), 8:
            return ctypes.c_double(number)
        case ("map", bytes(encoded)), 128:
            return ctypes.create_string_buffer(encoded, MAP_BYTES)
        case (kind, number), _:
            shown = "" if isinstance(number, bytes) else f" {number},"
            raise LaunchError(f"{where} is a {kind},{shown} which does not fit {size} bytes")


def _attributes(shape: Shape) -> "ctypes.Array[_LaunchAttribute]":
    found: list[_LaunchAttribute] = []
    if shape.cluster is not None:
        found.append(_LaunchAttribute(id=_CLUSTER, value=shape.cluster))
    if shape.cooperative:
        found.append(_LaunchAttribute(id=_COOPERATIVE, value=(1,)))
    return (_LaunchAttribute * len(found))(*found)
