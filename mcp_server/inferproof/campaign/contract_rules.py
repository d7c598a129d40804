"""What must hold within a kernel contract beyond its form: each rule yields its problems."""

import keyword
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from inferproof.campaign.parse import Problem
from inferproof.core.contract import Dim, DType, KernelContract, Tensor
from inferproof_remote.expressions import ExpressionError, evaluate

Rule = Callable[[KernelContract], Iterator[Problem]]

# Stands for a field of the model's config while the model is not known.
_SOME_EXTENT = 1024
_FARTHEST_NEIGHBOUR = 4096
_MOST_ELEMENTS = 1 << 36
_FLOATS = frozenset({DType.BF16, DType.F16, DType.F32, DType.F64})
_INTEGERS = frozenset({DType.I32, DType.I64, DType.U8})
_RESERVED = frozenset({"prepared"})


def contract_problems(contract: KernelContract) -> list[Problem]:
    """Return everything wrong with the contract itself, in the order of the file."""
    return [problem for rule in RULES for problem in rule(contract)]


def ranged_dims(contract: KernelContract) -> dict[str, tuple[int, int]]:
    """Return {dim: (least, greatest)} of the dims that workloads choose."""
    return {
        name: (dim.min, dim.max)
        for name, dim in contract.dims.items()
        if dim.from_model is None and dim.min is not None and dim.max is not None
    }


def shape_problems(contract: KernelContract, dims: Mapping[str, int]) -> Iterator[Problem]:
    """Yield tensors that have no sensible shape or range at these extents."""
    at = ", ".join(f"{name}={extent}" for name, extent in dims.items())
    for field, tensor in _tensors(contract):
        try:
            elements = 1
            for axis in tensor.shape:
                extent = evaluate(axis, dims)
                elements *= max(extent, 0)
            low, high = (evaluate(bound, dims) for bound in tensor.range or (0, 1))
        except ExpressionError as error:
            yield Problem(field=field, what=f"{_dotted(field)}: {error} (at {at})")
            continue
        if not 0 < elements <= _MOST_ELEMENTS:
            what = f"must have 1 to 2**36 elements, has {elements} at {at}"
            yield Problem(field=(*field, "shape"), what=f"{_dotted(field)}.shape: {what}")
        if low >= high:
            what = f"holds no integer: [{low}, {high}) at {at}"
            yield Problem(field=(*field, "range"), what=f"{_dotted(field)}.range: {what}")


def _dims(contract: KernelContract) -> Iterator[Problem]:
    for name, dim in contract.dims.items():
        field = ("dims", name)
        bounded = dim.min is not None or dim.max is not None
        forms = (bounded and dim.from_model is None, dim.value, dim.from_model)
        if sum(bool(form) for form in forms) != 1 or (dim.min is None) != (dim.max is None):
            what = "give {min, max}, or {value}, or {from_model}, optionally with {min, max}"
            yield Problem(field=field, what=f"dims.{name}: {what}")
        elif dim.min is not None and dim.max is not None and dim.min > dim.max:
            what = f"min {dim.min} is above max {dim.max}"
            yield Problem(field=field, what=f"dims.{name}: {what}")


def _names(contract: KernelContract) -> Iterator[Problem]:
    owner: dict[str, str] = {}
    for part in ("dims", "inputs", "outputs", "params"):
        names: Mapping[str, object] = getattr(contract, part)
        for name in names:
            if keyword.iskeyword(name) or name in _RESERVED:
                what = f"{part}.{name}: {name!r} is a reserved word"
                yield Problem(field=(part, name), what=what)
            elif name in owner:
                what = f"{part}.{name}: {owner[name]} has that name already"
                yield Problem(field=(part, name), what=what)
            owner[name] = part


def _expressions(contract: KernelContract) -> Iterator[Problem]:
    dims = {name: _example(dim) for name, dim in contract.dims.items()}
    for field, tensor in _tensors(contract):
        bounds = tensor.range or ()
        texts = [((*field, "shape", i), axis) for i, axis in enumerate(tensor.shape)]
        texts += [((*field, "range", i), bound) for i, bound in enumerate(bounds)]
        for where, text in texts:
            yield from _expression(where, text, dims)
    yield from _expression(("roofline", "bytes"), contract.roofline.bytes, dims)
    yield from _expression(("roofline", "flops"), contract.roofline.flops, dims)


def _expression(
    field: tuple[str | int, ...], text: str | int, dims: Mapping[str, int]
) -> Iterator[Problem]:
    try:
        evaluate(text, dims)
    except ExpressionError as error:
        yield Problem(field=field, what=f"{_dotted(field)}: {error}")


def _integer_ranges(contract: KernelContract) -> Iterator[Problem]:
    for field, tensor in _tensors(contract):
        is_input = field[0] == "inputs"
        wanted = is_input and tensor.dtype in _INTEGERS
        allowed = wanted or (is_input and tensor.dtype is DType.F32)
        if wanted and tensor.range is None:
            what = f"an {tensor.dtype} input needs `range: [low, high]`"
            yield Problem(field=field, what=f"{_dotted(field)}: {what}")
        elif not allowed and tensor.range is not None:
            what = "only integer and f32 inputs have a range"
            yield Problem(field=(*field, "range"), what=f"{_dotted(field)}.range: {what}")
        if not tensor.shape:
            what = "needs at least one axis"
            yield Problem(field=(*field, "shape"), what=f"{_dotted(field)}.shape: {what}")


def _arguments(contract: KernelContract) -> Iterator[Problem]:
    if not contract.outputs and not contract.mutates:
        yield Problem(field=("outputs",), what="outputs: none, and nothing that the call `mutates`")
    for part, names in (("mutates", contract.mutates), ("prepare", contract.prepare)):
        for name in names:
            if name not in contract.inputs:
                known = ", ".join(contract.inputs)
                what = f"{part}: {name!r} is no input; inputs are: {known}"
                yield Problem(field=(part,), what=what)
    for name in set(contract.mutates) & set(contract.prepare):
        what = f"prepare: {name!r} is mutated, so it cannot be prepared once"
        yield Problem(field=("prepare",), what=what)
    for name, param in contract.params.items():
        if param.dtype == "i64" and not param.value.is_integer():
            what = f"params.{name}.value: {param.value} is no integer"
            yield Problem(field=("params", name, "value"), what=what)


def _open_workloads(contract: KernelContract) -> Iterator[Problem]:
    ranged = ranged_dims(contract)
    for index, shape in enumerate(contract.workloads.practice):
        field = ("workloads", "practice", index)
        yield from _chosen(field, shape, ranged)
        for name in shape.keys() & ranged.keys():
            yield from _within((*field, name), (shape[name], shape[name]), ranged[name])


def _graded_workloads(contract: KernelContract) -> Iterator[Problem]:
    graded = contract.workloads.graded
    yield from _chosen(("workloads", "graded", "from"), graded.from_, ranged_dims(contract))
    for step in graded.neighbours:
        if step == 0 or abs(step) > _FARTHEST_NEIGHBOUR:
            what = f"{step} is no neighbour; steps are -4096 to 4096 without 0"
            field = ("workloads", "graded", "neighbours")
            yield Problem(field=field, what=f"{_dotted(field)}: {what}")


def _timed_workloads(contract: KernelContract) -> Iterator[Problem]:
    ranged = ranged_dims(contract)
    for index, ranges in enumerate(contract.workloads.timed.ranges):
        field = ("workloads", "timed", "ranges", index)
        yield from _chosen(field, ranges, ranged)
        for name in ranges.keys() & ranged.keys():
            yield from _within((*field, name), ranges[name], ranged[name])


def _chosen(
    field: tuple[str | int, ...], chosen: Iterable[str], ranged: Mapping[str, object]
) -> Iterator[Problem]:
    if set(chosen) != set(ranged):
        what = f"must name the dims that have a range ({', '.join(ranged) or 'none'})"
        named = ", ".join(chosen) or "none"
        yield Problem(field=field, what=f"{_dotted(field)}: {what}, names {named}")


def _within(
    field: tuple[str | int, ...], sizes: tuple[int, int], allowed: tuple[int, int]
) -> Iterator[Problem]:
    if not allowed[0] <= sizes[0] <= sizes[1] <= allowed[1]:
        shown = sizes[0] if sizes[0] == sizes[1] else list(sizes)
        what = f"{shown} is not within {allowed[0]}..{allowed[1]}"
        yield Problem(field=field, what=f"{_dotted(field)}: {what}")


def _tolerance(contract: KernelContract) -> Iterator[Problem]:
    tolerance = contract.tolerance
    used = {tensor.dtype for _, tensor in _tensors(contract)} & _FLOATS
    if tolerance.floor not in used:
        known = ", ".join(sorted(used)) or "none"
        what = f"{tolerance.floor} is no floating dtype of this contract ({known})"
        yield Problem(field=("tolerance", "floor"), what=f"tolerance.floor: {what}")
    for name in ("rms_over_yardstick", "p999_over_yardstick", "mean_over_yardstick"):
        bar = getattr(tolerance, name)
        if bar is not None and bar < 1:
            what = f"tolerance.{name}: below 1 the yardstick itself would fail"
            yield Problem(field=("tolerance", name), what=what)


def _repeats(contract: KernelContract) -> Iterator[Problem]:
    lists: dict[str, Iterable[str]] = {
        "mutates": contract.mutates,
        "prepare": contract.prepare,
        "baselines": contract.baselines,
        "inputs_like": contract.inputs_like,
        "mutants": contract.mutants,
        "failure_modes": (mode.id for mode in contract.failure_modes),
    }
    for field, names in lists.items():
        for name, times in Counter(names).items():
            if times > 1:
                yield Problem(field=(field,), what=f"{field}: {name!r} appears {times} times")


RULES: tuple[Rule, ...] = (
    _dims,
    _names,
    _expressions,
    _integer_ranges,
    _arguments,
    _open_workloads,
    _graded_workloads,
    _timed_workloads,
    _tolerance,
    _repeats,
)


def _tensors(contract: KernelContract) -> Iterator[tuple[tuple[str, str], Tensor]]:
    for name, tensor in contract.inputs.items():
        yield ("inputs", name), tensor
    for name, tensor in contract.outputs.items():
        yield ("outputs", name), tensor


def _example(dim: Dim) -> int:
    return dim.value or dim.max or dim.min or _SOME_EXTENT


def _dotted(field: tuple[str | int, ...]) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in field).removeprefix(".")
