"""Tensor maps of a device-only candidate: what a bulk copy of tiles needs to know of a tensor.

The manifest has shapes and boxes as contracts have them, the outermost axis first; the driver wants
the innermost first, and strides in bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import cast

from inferproof_remote.cuda_kernels import ITEM_BYTES
from inferproof_remote.expressions import evaluate
from inferproof_remote.job import as_number, as_table
from inferproof_remote.kernel import Kernel, Size

# CU_TENSOR_MAP_DATA_TYPE_*; of narrower numbers a map knows bytes alone.
_TYPES = {"bf16": 9, "f16": 6, "f32": 7, "f64": 8, "i32": 3, "i64": 5, "u8": 0}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
MAP_BYTES = 128
_MOST_RANK, _MOST_BOX, _ALIGNMENT = 5, 256, 16


class UnfitMap(ValueError):
    """A tensor map that no device takes; the candidate is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapAsked:
    """One map as the manifest asks for it."""

    tensor: str
    dtype: str | None
    shape: tuple[Size, ...] | None
    box: tuple[Size, ...]
    swizzle: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """One map with its numbers, in the driver's order."""

    tensor: str
    item_type: int
    extents: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    def to_json(self) -> dict[str, object]:
        """Return this map as plain JSON."""
        return asdict(self)


def parse_maps(raw: object) -> dict[str, MapAsked]:
    """Return the manifest's `tensor_maps`."""
    found: dict[str, MapAsked] = {}
    for name, each in as_table(raw, "tensor_maps").items():
        table = as_table(each, name)
        shape, dtype = table.get("shape"), table.get("dtype")
        found[name] = MapAsked(
            tensor=str(table["tensor"]),
            dtype=None if dtype is None else str(dtype),
            shape=None if shape is None else _sizes(shape),
            box=_sizes(table["box"]),
            swizzle=int(as_number(table.get("swizzle", 0), "swizzle")),
        )
    return found


def parse_map(raw: object) -> TensorMap:
    """Return one map from the JSON of `TensorMap`."""
    table = as_table(raw, "tensor map")
    return TensorMap(
        tensor=str(table["tensor"]),
        item_type=int(as_number(table["item_type"], "item_type")),
        extents=_whole(table["extents"]),
        strides_bytes=_whole(table["strides_bytes"]),
        box=_whole(table["box"]),
        swizzle=int(as_number(table["swizzle"], "swizzle")),
    )


def resolve_map(asked: MapAsked, kernel: Kernel, names: Mapping[str, int]) -> TensorMap:
    """Return a map under these dims.

    Raises:
        UnfitMap: no device takes it.
        ExpressionError: a size has no value.
    """
    own = next((t for t in (*kernel.inputs, *kernel.outputs) if t.name == asked.tensor), None)
    dtype = asked.dtype or (own.dtype if own else None)
    shape = asked.shape or (own.shape if own else None)
    if dtype not in ITEM_BYTES or shape is None:
        raise UnfitMap(f"tensor map of {asked.tensor}: give its dtype and shape")
    extents = tuple(evaluate(size, names) for size in reversed(shape))
    box = tuple(evaluate(size, names) for size in reversed(asked.box))
    item = ITEM_BYTES[dtype]
    strides = tuple(item * prod(extents[:axis]) for axis in range(1, len(extents)))
    _check(asked, extents, box, strides, item=item)
    return TensorMap(
        tensor=asked.tensor,
        item_type=_TYPES.get(dtype, _TYPES["u8"]),
        extents=extents,
        strides_bytes=strides,
        box=box,
        swizzle=_SWIZZLES[asked.swizzle],
    )


def map_bytes(found: TensorMap) -> int:
    """Return the bytes from the first element to the last that the map reaches."""
    items = {number: ITEM_BYTES[name] for name, number in _TYPES.items()}
    return prod(found.extents) * items[found.item_type]


def _check(
    asked: MapAsked,
    extents: Sequence[int],
    box: Sequence[int],
    strides: Sequence[int],
    *,
    item: int,
) -> None:
    where = f"tensor map of {asked.tensor}"
    if len(box) != len(extents) or not 1 <= len(extents) <= _MOST_RANK:
        raise UnfitMap(f"{where}: shape and box need the same 1 to {_MOST_RANK} axes")
    if not all(1 <= size <= _MOST_BOX for size in box) or min(extents) < 1:
        raise UnfitMap(f"{where}: a box of {tuple(reversed(box))} is beyond 1..{_MOST_BOX}")
    if any(stride % _ALIGNMENT for stride in strides) or box[0] * item % _ALIGNMENT:
        raise UnfitMap(f"{where}: rows and the box's innermost axis must be 16-byte multiples")
    if asked.swizzle not in _SWIZZLES:
        raise UnfitMap(f"{where}: swizzle is {asked.swizzle}, not 0, 32, 64 or 128")
    if asked.swizzle and box[0] * item > asked.swizzle:
        raise UnfitMap(f"{where}: the box's innermost axis is wider than the swizzle")


def _sizes(raw: object) -> tuple[Size, ...]:
    return tuple(each if isinstance(each, int) else str(each) for each in _list(raw))


def _whole(raw: object) -> tuple[int, ...]:
    return tuple(int(as_number(each, "size")) for each in _list(raw))


def _list(raw: object) -> Sequence[object]:
    return cast("Sequence[object]", raw)
