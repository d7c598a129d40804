"""A FlashInfer-Trace definition as the parts of a kernel contract, and a list of all that is left.

Pure: definition and workloads in, plain data and text out. What has no place in a contract is told
with the reason; without what a contract needs there is none.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inferproof.campaign.flashinfer.arguments import DTYPES, Arguments, map_arguments
from inferproof.campaign.flashinfer.reference import Output, Signature, obstacles, reference_file
from inferproof.campaign.flashinfer.shapes import Shapes, map_shapes
from inferproof.campaign.flashinfer.trace import Definition, Left, Row
from inferproof.core.canonical import Json

REVIEW = (
    "Read reference.py: it runs in the grader, trusted. Its float64 half is the definition's own "
    "code with every type widened, so a rounding that the kernel must do is gone there.",
    "Inputs are independent random numbers. If some must be sorted, positive or sum to one, "
    "the contract does not say so: look at the reference on what inputs_like draws.",
    "The mutants are generic and there is no failure mode: add to MUTANTS, `mutants` and "
    "`failure_modes` how this kernel goes wrong before you seal it.",
    "Tolerances are the defaults over the definition's own code; cut_share and mean_over_yardstick "
    "are not set. Name weights in `prepare` and libraries in `reuse`.",
)
_BYTES: Mapping[str, int] = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "u8": 1}
_COARSEST_FIRST = ("bf16", "f16", "f32", "f64")
_MOST_DOC = 1000
_MOST_EXPRESSION = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """contract.yaml as plain data and reference.py, empty if there can be none; what is left."""

    contract: Mapping[str, Json]
    reference: str
    left: tuple[Left, ...]


def map_definition(name: str, definition: Definition, rows: Sequence[Row]) -> Imported:
    """Return the contract `name` for a definition and its workloads."""
    shapes = map_shapes(definition, rows)
    arguments = map_arguments(definition, rows, shapes)
    left = [*shapes.left, *arguments.left, *_code_left(definition), *_told(definition, rows)]
    if any(each.blocks for each in left):
        return Imported(contract={}, reference="", left=tuple(left))
    left += _bars_left(definition, arguments)
    return Imported(
        contract=_contract(name, definition, shapes, arguments),
        reference=reference_file(name, definition.module, _signature(definition, arguments)),
        left=tuple(left),
    )


def _contract(
    name: str, definition: Definition, shapes: Shapes, arguments: Arguments
) -> dict[str, Json]:
    moved = _moved(definition, shapes, arguments)
    return {
        "kind": "kernel",
        "name": name,
        "doc": _doc(definition)[:_MOST_DOC],
        "dims": shapes.dims(),
        "inputs": {**arguments.inputs},
        **({"params": {**arguments.params}} if arguments.params else {}),
        "outputs": {**arguments.outputs},
        "reference": "reference.py:reference",
        "yardstick": "reference.py:yardstick",
        "baselines": ["torch", "torch.compile"],
        "workloads": shapes.workloads(moved),
        "inputs_like": ["normal", "outlier_channels", "near_cancelling", "small_integers"],
        "tolerance": {
            "rms_over_yardstick": 2.0,
            "p999_over_yardstick": 4.0,
            "floor": _floor(definition),
        },
        "mutants": ["zeros", "mean", "copy_input", "stale", "half", "lower_precision"],
        "roofline": {"bytes": moved, "flops": _flops(definition, shapes) or "0"},
    }


def _signature(definition: Definition, arguments: Arguments) -> Signature:
    return Signature(
        inputs=tuple(arguments.inputs),
        params=tuple(arguments.params),
        bools=frozenset(n for n, spec in definition.inputs.items() if spec.dtype == "bool"),
        outputs=[
            Output(given=name, name=arguments.renamed[name], dtype=spec.dtype)
            for name, spec in definition.outputs.items()
        ],
    )


def _doc(definition: Definition) -> str:
    kind = f", {definition.op_type}" if definition.op_type else ""
    told = " ".join((definition.description or "").split())
    start = f"Not reviewed: imported from FlashInfer-Trace ({definition.name}{kind})."
    return f"{start} {told}".strip()


def _code_left(definition: Definition) -> Iterator[Left]:
    for piece, why in obstacles(definition.module, list(definition.inputs)):
        yield Left(field="reference", value=piece, why=why, blocks=True)


def _moved(definition: Definition, shapes: Shapes, arguments: Arguments) -> str:
    """Return the least bytes moved: every tensor once, without those that an index chooses from."""
    counted: dict[int, list[str]] = {}
    for specs in (definition.outputs, definition.inputs):
        for name, spec in specs.items():
            if spec.shape and (specs is definition.outputs or name not in arguments.chosen_from):
                size = _BYTES[DTYPES[spec.dtype]]
                counted.setdefault(size, []).append(shapes.product(spec.shape))
    terms = [f"{size}*({' + '.join(elements)})" for size, elements in counted.items()]
    while len(terms) > 1 and len(" + ".join(terms)) > _MOST_EXPRESSION:
        terms.pop()
    return " + ".join(terms)


def _flops(definition: Definition, shapes: Shapes) -> str:
    """Return the operations of a product of two matrices; of nothing else are they known."""
    inputs = [spec.shape for spec in definition.inputs.values() if spec.shape]
    outputs = [spec.shape for spec in definition.outputs.values() if spec.shape]
    if definition.op_type != "gemm" or len(inputs) != 2 or len(outputs) != 1:
        return ""
    summed = (set(inputs[0]) & set(inputs[1])) - set(outputs[0])
    if set(outputs[0]) != (set(inputs[0]) | set(inputs[1])) - summed or not summed:
        return ""
    return f"2*{shapes.product([*outputs[0], *sorted(summed)])}"


def _floor(definition: Definition) -> str:
    dtypes = [DTYPES[spec.dtype] for spec in definition.outputs.values()]
    return min(dtypes, key=_COARSEST_FIRST.index)


def _bars_left(definition: Definition, arguments: Arguments) -> Iterator[Left]:
    floor = _floor(definition)
    finer = [n for n, spec in definition.outputs.items() if DTYPES[spec.dtype] != floor]
    if finer:
        why = f"a contract has one floor, {floor}: errors that small are allowed here too"
        yield Left(field="tolerance.floor", value=", ".join(finer), why=why)
    if definition.op_type != "gemm":
        why = "operations follow from the axes of a gemm alone; 0 is written, which bounds nothing"
        yield Left(field="roofline.flops", value=definition.op_type, why=why)
    if arguments.chosen_from:
        why = "an index chooses from it, so how much of it moves is not known; it is not counted"
        value = ", ".join(sorted(arguments.chosen_from))
        yield Left(field="roofline.bytes", value=value, why=why)
    doc = _doc(definition)
    if len(doc) > _MOST_DOC:
        yield Left(field="description", value=doc[_MOST_DOC:], why="`doc` ends before it")


def _told(definition: Definition, rows: Sequence[Row]) -> Iterator[Left]:
    """Yield what a contract has no field for."""
    for key, value in definition.unknown():
        yield Left(field=key, value=value, why="not known of this format")
    if definition.tags:
        yield Left(field="tags", value=", ".join(definition.tags), why="contracts have no tags")
    parts = (("axes", definition.axes), ("inputs", definition.inputs))
    for part, items in (*parts, ("outputs", definition.outputs)):
        for name, item in items.items():
            for key, value in item.unknown():
                why = "not known of this format, and it may change what the kernel is"
                yield Left(field=f"{part}.{name}.{key}", value=value, why=why, blocks=True)
            if item.description:
                why = "a contract describes the whole in `doc`"
                yield Left(field=f"{part}.{name}.description", value=item.description, why=why)
    yield from _sources_left(definition, rows)


def _sources_left(definition: Definition, rows: Sequence[Row]) -> Iterator[Left]:
    """Yield, once for all workloads, where inputs come from if they are not random."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for name, source in row.workload.inputs.items():
            scalar = definition.inputs[name].shape is None
            if source.type != ("scalar" if scalar else "random"):
                found[f"workload.inputs.{name}", source.type] += 1
        for key, value in (*row.unknown(), *row.workload.unknown()):
            if value != "null":
                found[f"workload.{key}", "present"] += 1
        if row.workload.uuid:
            found["workload.uuid", "present"] += 1
    for (field, value), times in found.items():
        why = (
            "recorded data is not read: inputs are drawn anew for each grading"
            if field.startswith("workload.inputs.")
            else "a contract has no place for it"
        )
        yield Left(field=field, value=f"{value} in {times} of {len(rows)} workloads", why=why)
