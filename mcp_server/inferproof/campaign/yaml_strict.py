"""YAML as plain data, strictly: one meaning for each file, and a line for each key.

The YAML 1.2 core schema without anchors, aliases, merge keys, other tags, duplicate keys, NaN and
infinity. `no`, `1_000` and `2026-01-01` are text. Nothing is constructed from a tag.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import yaml
from yaml.composer import ComposerError
from yaml.events import NodeEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from inferproof.campaign.tree import read_file
from inferproof.core.canonical import Json
from inferproof.core.errors import FileFormatError

FieldPath: TypeAlias = tuple[str | int, ...]

SIZE_LIMIT_BYTES = 256 << 10
_DEPTH = 32
_LARGEST = 1 << 63
# C0 and C1 controls but tab and line ends, surrogates, line separators, marks that reorder text.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029"
    "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
_CORE = "tag:yaml.org,2002:"
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's data and the line of each key and item, by its path from the top."""

    data: Json
    lines: Mapping[FieldPath, int]


def load(path: Path) -> Document:
    """Return the data of a YAML file.

    Raises:
        FileFormatError: unreadable, too large, or not strict YAML; it names the line.
    """
    return loads(read_file(path, limit_bytes=SIZE_LIMIT_BYTES), path=str(path))


def loads(data: bytes, *, path: str) -> Document:
    """Return the data of YAML bytes; `path` is what errors call them.

    Raises:
        FileFormatError: too large, or not strict YAML; it names the line.
    """
    if len(data) > SIZE_LIMIT_BYTES:
        raise FileFormatError(f"larger than {SIZE_LIMIT_BYTES >> 10} KiB", path=path)
    text = _decoded(data, path)
    try:
        node = _Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = _tidy(" ".join(part for part in (error.context, error.problem) if part))
        raise FileFormatError(what, path=path, line=mark.line + 1 if mark else None) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise FileFormatError(f"not YAML: {error}", path=path) from error
    if node is None:
        raise FileFormatError("the file is empty", path=path, line=1)
    reader = _Reader(path)
    return Document(data=reader.plain(node, ()), lines=reader.lines)


def _decoded(data: bytes, path: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FileFormatError("not UTF-8 text", path=path, line=line) from error
    found = _FORBIDDEN.search(text)
    if found is not None:
        what = f"control character U+{ord(found.group()):04X} is refused"
        raise FileFormatError(what, path=path, line=text.count("\n", 0, found.start()) + 1)
    return text


def _tidy(problem: str) -> str:
    if "'\\t'" in problem:
        return "a tab cannot indent or start a YAML value; use spaces"
    return problem


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {
        None: [
            (f"{_CORE}null", re.compile(f"(?:{_NULL.pattern})$")),
            (f"{_CORE}bool", re.compile(f"(?:{_BOOL.pattern})$")),
            (f"{_CORE}int", re.compile(f"(?:{_INT.pattern})$")),
            (f"{_CORE}float", re.compile(f"(?:{_FLOAT.pattern})$")),
        ]
    }
    _depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Return the next node, refusing anchors, aliases and deep nesting as they come."""
        event = cast("NodeEvent", self.peek_event())  # pyright: ignore[reportUnknownMemberType]
        if event.anchor is not None:
            raise ComposerError(None, None, "anchors and aliases are refused", event.start_mark)
        if self._depth >= _DEPTH:
            what = f"nested more than {_DEPTH} deep"
            raise ComposerError(None, None, what, event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Reader:
    """Turns nodes into plain data and remembers the lines."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.lines: dict[FieldPath, int] = {}

    def plain(self, node: Node, at: FieldPath) -> Json:
        self.lines.setdefault(at, _line(node))
        match node:
            case MappingNode(tag="tag:yaml.org,2002:map"):
                return self._mapping(node, at)
            case SequenceNode(tag="tag:yaml.org,2002:seq"):
                items = cast("list[Node]", node.value)
                return [self.plain(item, (*at, index)) for index, item in enumerate(items)]
            case ScalarNode():
                return self._scalar(node)
            case _:
                raise self._error(f"tag {node.tag!r} is refused", node)

    def _mapping(self, node: MappingNode, at: FieldPath) -> Json:
        data: dict[str, Json] = {}
        for key_node, value_node in cast("list[tuple[Node, Node]]", node.value):
            key = self._scalar(key_node) if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                raise self._error("a key must be text", key_node)
            if key in data:
                raise self._error(f"key {key!r} appears twice", key_node)
            self.lines[(*at, key)] = _line(key_node)
            data[key] = self.plain(value_node, (*at, key))
        return data

    def _scalar(self, node: ScalarNode) -> Json:
        text = cast("str", node.value)
        match node.tag.removeprefix(_CORE):
            case "str" if _FORBIDDEN.search(text) is None:
                return text
            case "null" if _NULL.fullmatch(text):
                return None
            case "bool" if _BOOL.fullmatch(text):
                return text.lower() == "true"
            case "int" if _INT.fullmatch(text):
                return self._integer(text, node)
            case "float" if _FLOAT.fullmatch(text):
                return self._real(text, node)
            case "str":
                raise self._error("control characters are refused", node)
            case "null" | "bool" | "int" | "float" as kind:
                raise self._error(f"{text[:40]!r} is no {kind}", node)
            case _:
                raise self._error(f"tag {node.tag!r} is refused", node)

    def _integer(self, text: str, node: Node) -> int:
        if len(text) > 24 or abs(number := _as_int(text)) >= _LARGEST:
            raise self._error(f"integer {text[:24]} is beyond 2**63", node)
        return number

    def _real(self, text: str, node: Node) -> float:
        spelled = text.lower().lstrip("+-")
        number = math.nan if spelled in {".inf", ".nan"} else float(text)
        if not math.isfinite(number):
            raise self._error(f"{text[:40]} is refused: numbers must be finite", node)
        return number

    def _error(self, what: str, node: Node) -> FileFormatError:
        return FileFormatError(what, path=self._path, line=_line(node))


def _as_int(text: str) -> int:
    return int(text, 0) if text.startswith(("0o", "0x")) else int(text)


def _line(node: Node) -> int:
    return node.start_mark.line + 1
