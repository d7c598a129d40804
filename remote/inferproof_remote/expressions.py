"""Integer expressions over a contract's dims, such as `2*(tokens*hidden + hidden)`.

Only names, integers, + - * // %, min, max, pow2 and parentheses are understood; nothing is ever
executed. `pow2(n)` is the least power of two that is not below n.
"""

import ast
from collections.abc import Mapping

_LARGEST = 1 << 62


class ExpressionError(ValueError):
    """The text is not an integer expression over the given dims."""


def evaluate(text: str | int, dims: Mapping[str, int]) -> int:
    """Return the value of `text`, with the names of `dims` standing for their extents.

    Raises:
        ExpressionError: unknown name, other syntax, division by zero, or a value beyond 2**62.
    """
    if isinstance(text, int):
        return text
    try:
        tree = ast.parse(text, mode="eval")
        return _value(tree.body, dims)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"{text!r} is not an integer expression: {error}") from error


def _value(node: ast.expr, dims: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.Name(id=name) if name in dims:
            return dims[name]
        case ast.Name(id=name):
            known = ", ".join(sorted(dims)) or "none"
            raise ExpressionError(f"unknown name {name!r}; dims are: {known}")
        case ast.BinOp(left=left, op=op, right=right):
            return _bounded(_combine(op, _value(left, dims), _value(right, dims)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, dims)
        case ast.Call(
            func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as given, keywords=[]
        ):
            values = [_value(each, dims) for each in given]
            return min(values) if name == "min" else max(values)
        case ast.Call(func=ast.Name(id="pow2"), args=[given], keywords=[]):
            return _bounded(1 << max(0, _value(given, dims) - 1).bit_length())
        case _:
            allowed = "only names, integers, + - * // %, min, max and pow2 are allowed"
            raise ExpressionError(f"{allowed}: {ast.dump(node)}")


def _combine(op: ast.operator, left: int, right: int) -> int:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case _:
            raise ExpressionError(f"only + - * // % are allowed, not {type(op).__name__}")


def _bounded(number: int) -> int:
    if abs(number) > _LARGEST:
        raise ExpressionError(f"{number} is beyond 2**62")
    return number
