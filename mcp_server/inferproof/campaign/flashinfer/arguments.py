"""Inputs and outputs of a definition as the inputs, params and outputs of a contract."""

import keyword
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inferproof.campaign.flashinfer.reference import index_targets
from inferproof.campaign.flashinfer.shapes import Shapes
from inferproof.campaign.flashinfer.trace import Definition, Left, Row, TensorSpec
from inferproof.core.canonical import Json

DTYPES: Mapping[str, str] = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "uint8": "u8",
}
_SCALARS: Mapping[str, str] = {
    **dict.fromkeys(("float64", "float32", "float16", "bfloat16"), "f32"),
    **dict.fromkeys(("int64", "int32", "int16", "int8", "uint8", "bool"), "i64"),
}
_ROUNDED = 2.0**-24  # some are recorded as float32, others as they were computed
_RESERVED = frozenset({"prepared", "torch", "bool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The contract's parts by name; `renamed` is {output of the definition: output here}."""

    inputs: Mapping[str, Json]
    params: Mapping[str, Json]
    outputs: Mapping[str, Json]
    renamed: Mapping[str, str]
    chosen_from: frozenset[str]
    left: tuple[Left, ...]


def map_arguments(definition: Definition, rows: Sequence[Row], shapes: Shapes) -> Arguments:
    """Return the arguments of a definition, and those that a contract cannot have."""
    left: list[Left] = []
    names = _output_names(definition)
    left += [
        Left(field=f"outputs.{given}", value=given, why=f"the name is taken: here it is {name}")
        for given, name in names.items()
        if given != name
    ]
    left += _refused(definition)
    targets = _targets(definition)
    left += _unbounded(definition, targets)
    values = _constants(definition, rows)
    left += _unfixed(definition, rows, values)
    tensors = {name: spec for name, spec in definition.inputs.items() if spec.shape is not None}
    return Arguments(
        inputs={
            name: _tensor(spec, shapes) | _span(name, targets, definition, shapes)
            for name, spec in tensors.items()
        },
        params={
            name: {"dtype": _SCALARS.get(definition.inputs[name].dtype, ""), "value": float(value)}
            for name, value in values.items()
        },
        outputs={names[name]: _tensor(spec, shapes) for name, spec in definition.outputs.items()},
        renamed=names,
        chosen_from=frozenset(name for chosen in targets.values() for name in chosen),
        left=tuple(left),
    )


def _output_names(definition: Definition) -> dict[str, str]:
    taken = definition.inputs.keys() | definition.axes.keys()
    return {name: f"{name}_out" if name in taken else name for name in definition.outputs}


def _refused(definition: Definition) -> Iterator[Left]:
    for part, specs in (("inputs", definition.inputs), ("outputs", definition.outputs)):
        for name, spec in specs.items():
            why = _why_not(part, spec)
            if keyword.iskeyword(name) or name in _RESERVED or name.startswith("_"):
                why = "the name is taken in a contract's files; rename it in the definition"
            elif part == "inputs" and name in definition.axes:
                why = "an axis has the same name; rename one in the definition"
            if why:
                shown = f"{spec.dtype} {list(spec.shape) if spec.shape is not None else 'scalar'}"
                yield Left(field=f"{part}.{name}", value=shown, why=why, blocks=True)


def _why_not(part: str, spec: TensorSpec) -> str:
    if spec.shape is None:
        scalar = part == "inputs" and spec.dtype in _SCALARS
        return "" if scalar else "only inputs are scalars, of a float, integer or bool"
    if not spec.shape:
        return "a tensor needs at least one axis"
    if spec.dtype not in DTYPES:
        return f"contracts have no dtype {spec.dtype}; they have {', '.join(DTYPES)}"
    if part == "outputs" and not spec.dtype.startswith(("float", "bfloat")):
        return "ties and samples have several right answers; such a contract needs an `align`"
    return ""


def _integers(definition: Definition) -> list[str]:
    return [
        name
        for name, spec in definition.inputs.items()
        if spec.shape and spec.dtype in {"int64", "int32", "uint8"}
    ]


def _targets(definition: Definition) -> dict[str, set[str]]:
    tensors = [name for name, spec in definition.inputs.items() if spec.shape]
    return index_targets(definition.module, tensors, _integers(definition))


def _first_axes(chosen: set[str], definition: Definition) -> set[str]:
    return {(definition.inputs[name].shape or ("",))[0] for name in chosen}


def _unbounded(definition: Definition, targets: Mapping[str, set[str]]) -> Iterator[Left]:
    for name in _integers(definition):
        if len(_first_axes(targets.get(name, set()), definition)) != 1:
            spec = definition.inputs[name]
            why = (
                "nothing says which values are right: it is not used, whole, only to index the "
                "first axis of other inputs; integers are drawn one by one from a range"
            )
            shown = f"{spec.dtype} {list(spec.shape or ())}"
            yield Left(field=f"inputs.{name}", value=shown, why=why, blocks=True)


def _span(
    name: str, targets: Mapping[str, set[str]], definition: Definition, shapes: Shapes
) -> dict[str, Json]:
    axes = sorted(_first_axes(targets.get(name, set()), definition))
    return {"range": [0, shapes.sizes[axes[0]]]} if axes else {}


def _tensor(spec: TensorSpec, shapes: Shapes) -> dict[str, Json]:
    sizes: list[Json] = [shapes.sizes[axis] for axis in spec.shape or ()]
    return {"dtype": DTYPES.get(spec.dtype, ""), "shape": sizes}


def _constants(definition: Definition, rows: Sequence[Row]) -> dict[str, float | int | bool]:
    """Return {scalar input: its value}, of those that all workloads give the same value."""
    found: dict[str, float | int | bool] = {}
    for name in _scalars(definition):
        values = _values(name, rows)
        first = values[0] if values else None
        apart = _ROUNDED if _SCALARS.get(definition.inputs[name].dtype) == "f32" else 0.0
        if first is not None and all(_alike(value, first, apart) for value in values):
            found[name] = first
    return found


def _alike(value: float | None, first: float, apart: float) -> bool:
    return value is not None and math.isclose(value, first, rel_tol=apart)


def _scalars(definition: Definition) -> list[str]:
    return [name for name, spec in definition.inputs.items() if spec.shape is None]


def _values(name: str, rows: Sequence[Row]) -> list[float | int | bool | None]:
    sources = (row.workload.inputs.get(name) for row in rows)
    return [source.value if source else None for source in sources]


def _unfixed(
    definition: Definition, rows: Sequence[Row], values: Mapping[str, object]
) -> Iterator[Left]:
    for name in _scalars(definition):
        if name not in values:
            told = sorted({str(value) for value in _values(name, rows)}) or ["no workload"]
            why = "a param is one number, which all workloads must give"
            yield Left(field=f"inputs.{name}", value=", ".join(told), why=why, blocks=True)
