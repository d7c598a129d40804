"""A kernel contract as the bench reads it: dims, tensors and where the trusted functions are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from inferproof_remote import expressions
from inferproof_remote.job import JobFormatError, as_number, as_table, as_texts

FLOATS = ("bf16", "f16", "f32", "f64", "f8e4m3", "f8e5m2", "ue4m3", "ue8m0", "f4e2m1x2")
Size: TypeAlias = str | int
Dims: TypeAlias = Mapping[str, int]
Law: TypeAlias = Literal["log_uniform", "uniform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorShape:
    """One argument; `span` bounds integers, and floats that are uniform, [low, high)."""

    name: str
    dtype: str
    shape: tuple[Size, ...]
    span: tuple[Size, Size] | None

    @property
    def has_families(self) -> bool:
        """Whether input families apply."""
        return self.dtype in FLOATS and self.span is None

    def extents(self, dims: Dims) -> tuple[int, ...]:
        """Return the extents of every axis under `dims`."""
        return tuple(expressions.evaluate(size, dims) for size in self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What one dim may be; `fixed` when there is nothing to draw."""

    low: int
    high: int

    @property
    def fixed(self) -> bool:
        """Whether there is only one value."""
        return self.low == self.high

    def clip(self, size: int) -> int:
        """Return the allowed value nearest to `size`."""
        return min(max(size, self.low), self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A contract with its dims resolved for one model."""

    name: str
    extents: Mapping[str, Extent]
    inputs: tuple[TensorShape, ...]
    outputs: tuple[TensorShape, ...]
    params: Mapping[str, float | int]
    mutates: tuple[str, ...]
    prepare: tuple[str, ...]
    reference: str
    yardstick: str
    align: str | None
    baselines: tuple[str, ...]
    practice: tuple[Dims, ...]
    draw: int
    laws: Mapping[str, Law]
    neighbours: tuple[int, ...]
    timed: tuple[Mapping[str, tuple[int, int]], ...]
    pairs: int
    families: tuple[str, ...]
    rms_bar: float
    p999_bar: float
    floor: str
    exact: bool
    mutants: tuple[str, ...]
    roofline_bytes: Size
    roofline_flops: Size
    engages: str | None = None

    @property
    def results(self) -> tuple[TensorShape, ...]:
        """Everything that a call writes and is judged by: outputs, and inputs that it changes."""
        return (*self.outputs, *(each for each in self.inputs if each.name in self.mutates))

    def order(self, dims: Dims) -> dict[str, int]:
        """Return `dims` in the contract's order, clipped to what the contract allows."""
        return {name: extent.clip(dims[name]) for name, extent in self.extents.items()}


def parse_kernel(raw: object, *, fixed: Mapping[str, int], most: Mapping[str, int]) -> Kernel:
    """Return the contract `raw` (JSON of the contract file) with its dims resolved.

    Raises:
        JobFormatError: a field has another form, or a dim cannot be resolved.
    """
    table = as_table(raw, "contract")
    work = as_table(table["workloads"], "workloads")
    graded, timed = as_table(work["graded"], "graded"), as_table(work["timed"], "timed")
    tolerance = as_table(table["tolerance"], "tolerance")
    roofline = as_table(table["roofline"], "roofline")
    return Kernel(
        name=str(table["name"]),
        extents=_extents(as_table(table["dims"], "dims"), fixed, most),
        inputs=_tensors(table["inputs"], "inputs"),
        outputs=_tensors(table["outputs"], "outputs"),
        params=_params(as_table(table.get("params", {}), "params")),
        mutates=as_texts(table.get("mutates", []), "mutates"),
        prepare=as_texts(table.get("prepare", []), "prepare"),
        reference=str(table["reference"]),
        yardstick=str(table["yardstick"]),
        align=_word(table.get("align")),
        baselines=as_texts(table["baselines"], "baselines"),
        practice=tuple(_sizes(each, "practice") for each in _list(work["practice"])),
        draw=int(as_number(graded["draw"], "draw")),
        laws={name: _law(law) for name, law in as_table(graded["from"], "from").items()},
        neighbours=_integers(graded.get("neighbours", []), "neighbours"),
        timed=tuple(_ranges(each) for each in _list(timed["ranges"])),
        pairs=int(as_number(timed["pairs"], "pairs")),
        families=as_texts(table["inputs_like"], "inputs_like"),
        rms_bar=as_number(tolerance["rms_over_yardstick"], "rms_over_yardstick"),
        p999_bar=as_number(tolerance["p999_over_yardstick"], "p999_over_yardstick"),
        floor=str(tolerance["floor"]),
        exact=tolerance.get("exact") is True,
        mutants=as_texts(table["mutants"], "mutants"),
        roofline_bytes=str(roofline["bytes"]),
        roofline_flops=str(roofline["flops"]),
        engages=_word(table.get("engages")),
    )


def _word(raw: object) -> str | None:
    return None if raw is None else str(raw)


def _integers(raw: object, name: str) -> tuple[int, ...]:
    return tuple(int(as_number(each, name)) for each in _list(raw))


def _extents(
    raw: Mapping[str, object], fixed: Mapping[str, int], most: Mapping[str, int]
) -> dict[str, Extent]:
    extents: dict[str, Extent] = {}
    for name, each in raw.items():
        dim = as_table(each, f"dim {name}")
        value = fixed.get(name, dim.get("value"))
        if value is not None:
            size = int(as_number(value, name))
            extents[name] = Extent(low=size, high=size)
            continue
        if dim.get("min") is None or dim.get("max") is None:
            raise JobFormatError(f"dim {name} has neither a value nor both min and max")
        low, high = int(as_number(dim["min"], name)), int(as_number(dim["max"], name))
        extents[name] = Extent(low=low, high=max(low, min(high, most.get(name, high))))
    return extents


def _tensors(raw: object, name: str) -> tuple[TensorShape, ...]:
    tensors: list[TensorShape] = []
    for key, each in as_table(raw, name).items():
        table = as_table(each, key)
        span = table.get("range")
        sizes = tuple(_size(size, key) for size in _list(table["shape"]))
        bounds = None if span is None else tuple(_size(bound, key) for bound in _list(span))
        tensors.append(
            TensorShape(
                name=key,
                dtype=str(table["dtype"]),
                shape=sizes,
                span=None if bounds is None else (bounds[0], bounds[1]),
            )
        )
    return tuple(tensors)


def _params(raw: Mapping[str, object]) -> dict[str, float | int]:
    params: dict[str, float | int] = {}
    for name, each in raw.items():
        table = as_table(each, name)
        value = as_number(table["value"], name)
        params[name] = int(value) if table["dtype"] == "i64" else value
    return params


def _ranges(raw: object) -> dict[str, tuple[int, int]]:
    ranges: dict[str, tuple[int, int]] = {}
    for name, bounds in as_table(raw, "timed range").items():
        low, high = (int(as_number(bound, name)) for bound in _list(bounds))
        ranges[name] = (low, high)
    return ranges


def _sizes(raw: object, name: str) -> dict[str, int]:
    return {key: int(as_number(value, name)) for key, value in as_table(raw, name).items()}


def _law(raw: object) -> Law:
    if raw not in ("log_uniform", "uniform"):
        raise JobFormatError(f"{raw!r} is no way to draw a dim")
    return raw


def _size(raw: object, name: str) -> Size:
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise JobFormatError(f"{name} has size {raw!r}, not a number or an expression")
    return raw


def _list(raw: object) -> Sequence[object]:
    if not isinstance(raw, list | tuple):
        raise JobFormatError(f"{raw!r} is not a list")
    return cast("Sequence[object]", raw)
