"""How an answer to a task is read: as it is, by a pattern, by a schema, as a call of a tool.

An answer is hostile text. Patterns come from sealed files alone, and run in a process of their own
with a time limit, since no pattern is proof against every text.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from inferproof_remote.serving.wire import Table, listed, parsed, table

_LIMIT_S = 2.0
_LONGEST = 100_000
_SEARCH = (
    "import json, re, sys\n"
    "pattern, text = json.load(sys.stdin)\n"
    "sys.exit(0 if re.search(pattern, text) else 1)\n"
)
_TYPES: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "object": (dict,),
        "array": (list,),
        "string": (str,),
        "number": (int, float),
        "integer": (int,),
        "boolean": (bool,),
        "null": (type(None),),
    }
)


class CheckerTimeout(Exception):
    """A pattern took too long on an answer."""


def is_right(kind: str, rule: object, answer: str) -> bool:
    """Return whether an answer's text is right.

    Raises:
        CheckerTimeout: that cannot be said in time.
    """
    match kind:
        case "exact":
            return answer.strip() in [str(each).strip() for each in listed(rule)]
        case "regex":
            return _found(str(rule), answer[:_LONGEST])
        case "json_schema":
            value = _value(answer)
            return value is not _NOTHING and fits(value, table(rule))
        case _:
            return answer.strip().startswith(str(rule).strip())


def calls_tool(rule: object, calls: Sequence[object]) -> bool:
    """Return whether the first call is of the named tool, the expected arguments among its own."""
    wanted = table(rule)
    function = table(table(calls[0] if calls else None).get("function"))
    given = parsed(str(function.get("arguments")))
    if given is None or function.get("name") != wanted.get("name"):
        return False
    return all(
        key in given and given[key] == value
        for key, value in table(wanted.get("arguments")).items()
    )


_NOTHING = object()


def _value(answer: str) -> object:
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return _NOTHING


def _found(pattern: str, answer: str) -> bool:
    argv = [sys.executable, "-I", "-c", _SEARCH]
    data = json.dumps([pattern, answer])
    try:
        return subprocess.run(argv, input=data, text=True, timeout=_LIMIT_S).returncode == 0
    except subprocess.TimeoutExpired as error:
        raise CheckerTimeout from error


def fits(value: object, schema: Table) -> bool:
    """Return whether a JSON value is as a schema of the documented keywords says."""
    return all(_RULES[word](value, said, schema) for word, said in schema.items())


def _is_type(value: object, said: object, _: Table) -> bool:
    names = [said] if isinstance(said, str) else listed(said)
    for name in names:
        kinds = _TYPES.get(str(name), ())
        if isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds):
            return True
    return False


def _has_properties(value: object, said: object, _: Table) -> bool:
    given = table(value)
    return all(fits(given[key], table(each)) for key, each in table(said).items() if key in given)


def _has_no_others(value: object, said: object, schema: Table) -> bool:
    return said is not False or set(table(value)) <= set(table(schema.get("properties")))


def _bounded(measure: Callable[[object], float | None], least: bool) -> "_Rule":
    def rule(value: object, said: object, _: Table) -> bool:
        size = measure(value)
        if size is None or not isinstance(said, int | float):
            return True
        return size >= said if least else size <= said

    return rule


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _items(value: object) -> float | None:
    return len(listed(value)) if _is_type(value, "array", {}) else None


def _letters(value: object) -> float | None:
    return float(len(value)) if isinstance(value, str) else None


_Rule = Callable[[object, object, Table], bool]
_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "type": _is_type,
        "enum": lambda value, said, _: value in listed(said),
        "const": lambda value, said, _: value == said,
        "properties": _has_properties,
        "required": lambda value, said, _: set(map(str, listed(said))) <= set(table(value)),
        "additionalProperties": _has_no_others,
        "items": lambda value, said, _: all(fits(each, table(said)) for each in listed(value)),
        "minItems": _bounded(_items, least=True),
        "maxItems": _bounded(_items, least=False),
        "minimum": _bounded(_number, least=True),
        "maximum": _bounded(_number, least=False),
        "minLength": _bounded(_letters, least=True),
        "maxLength": _bounded(_letters, least=False),
    }
)
