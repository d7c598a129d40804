"""How tools are called from a shell, as text: what each is for, what it takes."""

import inspect
import textwrap
from collections.abc import Iterator, Sequence

from pydantic import TypeAdapter

from inferproof.core.canonical import Json
from inferproof.tools.spec import Tool

_WIDTH = 100


def tool_list(tools: Sequence[Tool]) -> str:
    """Return a line for each tool, and how to go on."""
    widest = max(len(tool.name) for tool in tools)
    lines = [f"{tool.name:{widest}}  {tool.description.splitlines()[0]}" for tool in tools]
    lines += ["", "what one takes: inferproof call TOOL --help", _usage("TOOL")]
    return "\n".join(lines)


def one_tool(tool: Tool) -> str:
    """Return what a tool does and each argument with its meaning, kind and default."""
    return "\n".join([_usage(tool.name), "", tool.description, "", *_arguments(tool)])


def _usage(name: str) -> str:
    return f"usage: inferproof call {name} '{{\"argument\": value}}' --campaign DIR"


def _arguments(tool: Tool) -> Iterator[str]:
    parameters = list(inspect.signature(tool.function, eval_str=True).parameters.values())[1:]
    if not parameters:
        yield "It takes no arguments."
    for one in parameters:
        schema = TypeAdapter[object](one.annotation).json_schema()
        needed = "needed" if one.default is one.empty else f"default {one.default!r}"
        yield f"  {one.name}: {_kind(schema)}, {needed}"
        described = str(schema.get("description", ""))
        yield from textwrap.wrap(
            described, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
        )


def _kind(schema: dict[str, Json]) -> str:
    match schema:
        case {"enum": list(words)}:
            return " | ".join(map(str, words))
        case {"anyOf": list(kinds)}:
            return " | ".join(_kind(kind) for kind in kinds if isinstance(kind, dict))
        case {"type": "array", "items": dict(item)}:
            return f"list of {_kind(item)}"
        case {"type": kind}:
            return str(kind)
        case _:
            return "value"
