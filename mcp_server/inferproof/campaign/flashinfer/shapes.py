"""Axes, constraints and workload shapes of a definition as the dims and workloads of a contract.

A variable axis becomes a range around what workloads recorded. One that a constraint ties to others
becomes an expression of them, since a contract draws each dim by itself.
"""

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from inferproof.campaign.flashinfer.trace import Definition, Left, Row
from inferproof.core.canonical import Json
from inferproof_remote.expressions import ExpressionError, evaluate

ASSUMED = (1, 1024)
_MOST_DIMS = 8
_MOST_PRACTICE = 8
_SOME_EXTENT = 64
_COMPARED: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
}
Shape = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The dims; each axis's size as an expression over them; the recorded shapes; what is left."""

    constant: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, str]
    recorded: tuple[Shape, ...]
    left: tuple[Left, ...]

    def dims(self) -> dict[str, Json]:
        """Return `dims` of the contract: variable ones first."""
        ranged: dict[str, Json] = {n: {"min": a, "max": b} for n, (a, b) in self.ranges.items()}
        return {**ranged, **{name: {"value": value} for name, value in self.constant.items()}}

    def product(self, axes: Sequence[str]) -> str:
        """Return the number of elements of a tensor with these axes, as an expression."""
        sizes = (self.sizes[axis] for axis in axes)
        return "*".join(size if size.isidentifier() else f"({size})" for size in sizes)

    def workloads(self, moved: str) -> dict[str, Json]:
        """Return `workloads` of the contract; `moved` says which recorded shape is the largest."""
        by_size = sorted(self.recorded, key=lambda shape: self._size(shape, moved))
        practice: list[Json] = [dict(each) for each in _spread(by_size, _MOST_PRACTICE)]
        timed: list[Json] = [
            self._around(each) for each in _spread(by_size[len(by_size) // 2 :], 2)
        ]
        neighbours: list[Json] = [-1, 1] if self.ranges else []
        return {
            "practice": practice,
            "graded": {
                "draw": 8,
                "from": dict.fromkeys(self.ranges, "log_uniform"),
                "neighbours": neighbours,
            },
            "timed": {"ranges": timed, "pairs": 20},
        }

    def _size(self, shape: Shape, moved: str) -> float:
        size = _evaluated(moved, {**self.constant, **shape})
        return math.inf if size is None else size

    def _around(self, shape: Shape) -> dict[str, Json]:
        return {name: [max(self.ranges[name][0], n - n // 4), n] for name, n in shape.items()}


def map_shapes(definition: Definition, rows: Sequence[Row]) -> Shapes:
    """Return the dims of a definition, and all of its axes that are not in them."""
    tied = _tied(definition)
    left = [*_constraints_left(definition, tied), *_rows_left(rows, definition, tied)]
    free = [name for name in definition.variable if name not in tied]
    usable = [row.workload.axes for row in rows if _is_usable(row, definition, tied)]
    recorded = list({tuple((n, axes[n]) for n in free): None for axes in usable})
    if rows and not usable:
        left.append(Left(field="workloads", value="all", why="none can be used", blocks=True))
    ranges = {name: _range([axes[name] for axes in usable]) for name in free}
    if not rows:
        left += [_assumed(name) for name in free]
        extents = (1, 32, 1024) if free else (1,)
        recorded = [tuple((n, extent) for n in free) for extent in extents]
    if len(free) + len(definition.constant) > _MOST_DIMS:
        axes = ", ".join([*free, *definition.constant])
        why = f"a contract has at most {_MOST_DIMS} dims"
        left.append(Left(field="axes", value=axes, why=why, blocks=True))
    return Shapes(
        constant=definition.constant,
        ranges=ranges,
        sizes={name: tied.get(name, name) for name in definition.axes},
        recorded=tuple(dict(shape) for shape in recorded),
        left=tuple(left),
    )


def _range(values: Sequence[int]) -> tuple[int, int]:
    return (max(1, min(values) // 2), max(values)) if values else ASSUMED


def _assumed(name: str) -> Left:
    low, high = ASSUMED
    why = f"no workload gives it a value: {low} to {high} is assumed; edit `dims` and `workloads`"
    return Left(field=f"axes.{name}", value="var", why=why)


def _spread(items: Sequence[Shape], most: int) -> list[Shape]:
    """Return up to `most` items, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[at * (len(items) - 1) // (most - 1)] for at in range(most)]


def _tied(definition: Definition) -> dict[str, str]:
    """Return {variable axis: expression over the others} for what constraints tie together."""
    tied: dict[str, ast.expr] = {}
    for constraint in definition.constraints or ():
        for name, value in islice(_solved(_comparison(constraint), definition, tied), 1):
            tied = {each: _with({name: value}, other) for each, other in tied.items()}
            tied[name] = value
    return {name: ast.unparse(value) for name, value in tied.items()}


def _solved(
    comparison: ast.Compare | None, definition: Definition, tied: Mapping[str, ast.expr]
) -> Iterator[tuple[str, ast.expr]]:
    """Yield (axis, its value) for each way to read a comparison as an equation for a free axis."""
    if comparison is None or not isinstance(comparison.ops[0], ast.Eq):
        return
    left, right = comparison.left, comparison.comparators[0]
    for one, other in ((left, right), (right, left)):
        value = _with(tied, other)
        known = dict.fromkeys(definition.axes.keys() - tied.keys(), _SOME_EXTENT)
        known |= definition.constant
        free = isinstance(one, ast.Name) and one.id in definition.variable and one.id not in tied
        if isinstance(one, ast.Name) and free:
            known.pop(one.id)
            if (_value(value, known) or 0) > 0:
                yield one.id, value


def _comparison(constraint: str) -> ast.Compare | None:
    try:
        body = ast.parse(constraint, mode="eval").body
        ast.unparse(body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return body if isinstance(body, ast.Compare) and len(body.ops) == 1 else None


class _Substitute(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Put a value in the place of its name."""
        return self._values.get(node.id, node)


def _with(values: Mapping[str, ast.expr], expression: ast.expr) -> ast.expr:
    copy = ast.parse(ast.unparse(expression), mode="eval")
    return _Substitute(values).visit(copy).body


def _value(expression: ast.expr, dims: Mapping[str, int]) -> int | None:
    return _evaluated(ast.unparse(expression), dims)


def _evaluated(text: str, dims: Mapping[str, int]) -> int | None:
    try:
        return evaluate(text, dims)
    except ExpressionError:
        return None


def _constraints_left(definition: Definition, tied: Mapping[str, str]) -> Iterator[Left]:
    """Yield constraints that drawing each dim by itself does not keep."""
    equations = {name: ast.parse(text, mode="eval").body for name, text in tied.items()}
    for text in definition.constraints or ():
        comparison = _comparison(text)
        held = comparison is not None and _holds(comparison, definition.constant, equations)
        if not held:
            names = {n.id for n in ast.walk(comparison or ast.Pass()) if isinstance(n, ast.Name)}
            of_values = names - definition.axes.keys()
            why = (
                "it is about values of inputs, which are drawn one by one"
                if of_values
                else "dims are drawn one by one: it would not hold"
            )
            yield Left(field="constraints", value=text, why=why, blocks=True)


def _holds(
    comparison: ast.Compare, constant: Mapping[str, int], equations: Mapping[str, ast.expr]
) -> bool:
    """Return whether a comparison is true whatever is drawn."""
    left, right = (_with(equations, each) for each in (comparison.left, comparison.comparators[0]))
    if isinstance(comparison.ops[0], ast.Eq) and ast.dump(left) == ast.dump(right):
        return True
    values = _value(left, constant), _value(right, constant)
    compare = _COMPARED.get(type(comparison.ops[0]))
    if compare is None or values[0] is None or values[1] is None:
        return False
    return compare(values[0], values[1])


def _rows_left(
    rows: Sequence[Row], definition: Definition, tied: Mapping[str, str]
) -> Iterator[Left]:
    for row in rows:
        if not _is_usable(row, definition, tied):
            axes = ", ".join(f"{name}={size}" for name, size in row.workload.axes.items())
            why = "an axis is 0, or the shape breaks a constraint; the workload is left out"
            yield Left(field=f"workload {row.workload.uuid}".strip(), value=axes, why=why)


def _is_usable(row: Row, definition: Definition, tied: Mapping[str, str]) -> bool:
    axes = row.workload.axes | definition.constant
    if 0 in axes.values():
        return False
    return all(_evaluated(text, axes) == axes[name] for name, text in tied.items())
