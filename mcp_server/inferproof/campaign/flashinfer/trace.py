"""FlashInfer-Trace files as frozen values: one definition, and the workloads recorded of it.

Keys that the format gained since are kept aside (`model_extra`), so that whoever maps a definition
can tell of them; what is there must have the documented form.
"""

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NoReturn, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from inferproof.campaign.tree import read_file
from inferproof.core.canonical import Json
from inferproof.core.contract import Symbol
from inferproof.core.errors import FileFormatError
from inferproof.core.values import Value

_LIMIT_BYTES = 8 << 20
_HINT = "correct the file; what is read of it says: inferproof docs formats"
Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What of a definition is not in the contract, and why; whether there is none without it."""

    field: str
    value: str
    why: str
    blocks: bool = False


class _Open(Value):
    model_config = ConfigDict(extra="allow")

    def unknown(self) -> Iterator[tuple[str, str]]:
        """Yield (key, value as JSON) of what the format as we know it does not have."""
        for key, value in (self.model_extra or {}).items():
            yield key, json.dumps(value, ensure_ascii=False)


class Axis(_Open):
    """A named extent: `const` has a value, `var` is chosen by each workload."""

    type: Literal["const", "var"]
    value: Annotated[int, Field(ge=1)] | None = None
    description: str | None = None


class TensorSpec(_Open):
    """An input or output by its axes; a scalar when `shape` is null."""

    shape: tuple[str, ...] | None
    dtype: str
    description: str | None = None


class Definition(_Open):
    """What a kernel computes: its axes, arguments and a reference in torch."""

    name: Text
    op_type: str = ""
    axes: Annotated[dict[Symbol, Axis], Field(min_length=1)]
    inputs: Annotated[dict[Symbol, TensorSpec], Field(min_length=1)]
    outputs: Annotated[dict[Symbol, TensorSpec], Field(min_length=1)]
    reference: Text
    tags: tuple[str, ...] | None = None
    description: str | None = None
    constraints: tuple[str, ...] | None = None

    @property
    def variable(self) -> tuple[str, ...]:
        """The axes that workloads choose."""
        return tuple(name for name, axis in self.axes.items() if axis.type == "var")

    @property
    def constant(self) -> dict[str, int]:
        """The axes that have a value."""
        return {name: axis.value for name, axis in self.axes.items() if axis.value is not None}

    @property
    def module(self) -> ast.Module:
        """The reference as a syntax tree; it is never run here."""
        return ast.parse(self.reference)


class Source(_Open):
    """Where a workload takes one input from."""

    type: str
    value: bool | int | float | None = None


class Workload(_Open):
    """One recorded call: its variable axes, and where its inputs come from."""

    uuid: str = ""
    axes: dict[str, Annotated[int, Field(ge=0)]]
    inputs: dict[str, Source]


class Row(_Open):
    """A line of the file: a workload alone, or a trace that has one."""

    definition: str
    workload: Workload


Model = TypeVar("Model", bound=Value)


def read_definition(path: Path) -> Definition:
    """Return the definition in a JSON file.

    Raises:
        FileFormatError: unreadable, not JSON, or not of the documented form.
    """
    shown = str(path)
    raw = _json(read_file(path, limit_bytes=_LIMIT_BYTES), shown, None)
    definition = _valid(Definition, raw, shown, None)
    for what in _problems(definition):
        raise FileFormatError(what, path=shown, hint=_HINT)
    return definition


def read_workloads(path: Path, definition: Definition) -> tuple[Row, ...]:
    """Return the workloads in a file of JSON lines.

    Raises:
        FileFormatError: a line is no workload of this definition; the error names the line.
    """
    shown = str(path)
    lines = read_file(path, limit_bytes=_LIMIT_BYTES).splitlines()
    rows = [
        _row(_json(line, shown, number), definition, shown, number)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not rows:
        raise FileFormatError("there is no workload", path=shown, hint=_HINT)
    return tuple(rows)


def _row(raw: Json, definition: Definition, path: str, line: int) -> Row:
    if not isinstance(raw, dict) or "workload" not in raw:
        raw = {"definition": definition.name, "workload": raw}
    row = _valid(Row, raw, path, line)
    for what in _row_problems(row, definition):
        raise FileFormatError(what, path=path, line=line, hint=_HINT)
    return row


def _row_problems(row: Row, definition: Definition) -> Iterator[str]:
    if row.definition != definition.name:
        yield f"is a workload of {row.definition!r}, not of {definition.name!r}"
    axes = row.workload.axes
    for name in sorted(set(definition.variable) - axes.keys()):
        yield f"axes: {name!r} has no value"
    for name, value in axes.items():
        if name not in definition.axes:
            yield f"axes: {name!r} is no axis of the definition"
        elif value != definition.constant.get(name, value):
            yield f"axes.{name}: is {value}, the definition says {definition.constant[name]}"
    for name in row.workload.inputs:
        if name not in definition.inputs:
            yield f"inputs: {name!r} is no input of the definition"


def _problems(definition: Definition) -> Iterator[str]:
    for name, axis in definition.axes.items():
        if (axis.type == "const") != (axis.value is not None):
            yield f"axes.{name}: const axes have a value, var axes have none"
    for part, specs in (("inputs", definition.inputs), ("outputs", definition.outputs)):
        for name, spec in specs.items():
            for axis in (axis for axis in spec.shape or () if axis not in definition.axes):
                known = ", ".join(definition.axes)
                yield f"{part}.{name}.shape: {axis!r} is no axis; axes are: {known}"
    yield from _code_problems(definition)


def _code_problems(definition: Definition) -> Iterator[str]:
    try:
        module = definition.module
        ast.unparse(module)  # as it will be written; this too recurses
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield f"reference: not Python: {error}"
        return
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in module.body):
        yield "reference: defines no function `run`"


def _valid(model: type[Model], raw: Json, path: str, line: int | None) -> Model:
    try:
        return model.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the object"
        what = f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise FileFormatError(what, path=path, line=line, hint=_HINT) from error


def _json(data: bytes, path: str, line: int | None) -> Json:
    try:
        return json.loads(data, object_pairs_hook=_once, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"not JSON: {error}", path=path, line=line, hint=_HINT) from error


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key appears twice among {', '.join(key for key, _ in pairs)}")
    return found


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
