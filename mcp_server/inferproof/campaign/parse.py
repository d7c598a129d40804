"""Files become frozen values here, or one error that says what is wrong on which line."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeGuard, TypeVar, get_args, get_origin

from pydantic import BaseModel, RootModel, ValidationError

from inferproof.core.errors import FileFormatError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from inferproof.campaign.yaml_strict import Document, FieldPath

Model = TypeVar("Model", bound=BaseModel)
_SHOWN = 3
_ORDER: Mapping[str, int] = {"extra_forbidden": 0, "missing": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a file, and the field it is about."""

    field: "FieldPath"
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed(Generic[Model]):
    """A value and where its fields stand in the file."""

    value: Model
    path: str
    lines: "Mapping[FieldPath, int]"

    def error(self, problems: Sequence[Problem]) -> FileFormatError:
        """Return one error that tells the first problems, with their lines."""
        return _error(problems, self.lines, self.path)

    def require(self, problems: Iterable[Problem]) -> None:
        """Do nothing when there are no problems.

        Raises:
            FileFormatError: there are; the error tells the first three.
        """
        found = list(problems)
        if found:
            raise self.error(found)


def parse(model: type[Model], path: Path) -> Model:
    """Return the YAML file as a frozen value of `model`.

    Raises:
        FileFormatError: the file is unreadable, not strict YAML, or has not the form of `model`.
    """
    return parse_file(model, path).value


def parse_file(model: type[Model], path: Path) -> Parsed[Model]:
    """Return the YAML file as a value together with its line numbers; errors as `parse`."""
    from inferproof.campaign import yaml_strict  # PyYAML is loaded by the first file

    return _parse(model, yaml_strict.load(path), str(path))


def parse_bytes(model: type[Model], data: bytes, *, path: str) -> Parsed[Model]:
    """Return YAML bytes as a value together with line numbers; errors call the file `path`."""
    from inferproof.campaign import yaml_strict  # PyYAML is loaded by the first file

    return _parse(model, yaml_strict.loads(data, path=path), path)


def _parse(model: type[Model], document: "Document", path: str) -> Parsed[Model]:
    try:
        # Strict JSON: no number from text, no bool as number, yet tuples and enums from YAML.
        value = model.model_validate_json(json.dumps(document.data), strict=True)
    except ValidationError as error:
        problems = _problems(error, model, document)
        raise _error(problems, document.lines, path) from error
    return Parsed(value=value, path=path, lines=document.lines)


def _error(
    problems: Sequence[Problem], lines: "Mapping[FieldPath, int]", path: str
) -> FileFormatError:
    first_line = _line_of(problems[0].field, lines)
    told = [problems[0].what]
    for problem in problems[1:_SHOWN]:
        told.append(f"line {_line_of(problem.field, lines)}: {problem.what}")
    if len(problems) > _SHOWN:
        told.append(f"and {len(problems) - _SHOWN} more")
    hint = "run: inferproof docs formats (it documents this file)"
    return FileFormatError("; ".join(told), path=path, line=first_line, hint=hint)


def _line_of(field: "FieldPath", lines: "Mapping[FieldPath, int]") -> int:
    while field not in lines and field:
        field = field[:-1]
    return lines.get(field, 1)


def _problems(
    error: ValidationError, model: type[BaseModel], document: "Document"
) -> list[Problem]:
    by_field: dict[FieldPath, str] = {}
    # A misspelt key is also a missing one; the misspelling says more.
    details = error.errors(include_url=False, include_context=False)
    for detail in sorted(details, key=lambda detail: _ORDER.get(detail["type"], 1)):
        field = _field(detail["loc"], document.lines)
        if detail["type"] == "missing":
            field = (*field, detail["loc"][-1])
        what = _what(detail, field, model)
        # One field of a union gives one error for each alternative.
        by_field[field] = f"{by_field[field]}, or {what}" if field in by_field else what
    return [
        Problem(field=field, what=f"{_dotted(field)}: {what}") for field, what in by_field.items()
    ]


def _field(loc: "FieldPath", lines: "Mapping[FieldPath, int]") -> "FieldPath":
    field: FieldPath = ()
    for part in loc:
        if (*field, part) in lines:
            field = (*field, part)
    return field


def _what(detail: "ErrorDetails", field: "FieldPath", model: type[BaseModel]) -> str:
    match detail["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return f"unknown key; {_nearest(str(field[-1]), _keys_at(model, field[:-1]))}"
        case "too_short" | "too_long":
            return _lower(detail["msg"])
        case _:
            return f"{_lower(detail['msg'])}, not {_shown(detail['input'])}"


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    short = text if len(text) <= 60 else f"{text[:57]}..."
    match value:
        case str():
            return f"{short} (text)"
        case bool():
            return f"{short} (a boolean)"
        case int() | float():
            return f"{short} (a number)"
        case _:
            return short


def _dotted(field: "FieldPath") -> str:
    text = ""
    for part in field:
        text += f"[{part}]" if isinstance(part, int) else f".{_printable(part)}"
    return text.removeprefix(".") or "the file"


def _printable(key: str) -> str:
    short = key if len(key) <= 80 else f"{key[:77]}..."
    return short if short.isprintable() else repr(short)


def _nearest(key: str, valid: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, valid, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"valid here: {', '.join(valid)}"


def _keys_at(model: type[BaseModel], field: "FieldPath") -> list[str]:
    annotation: object = model
    for part in field:
        annotation = _inside(annotation, part)
    fields = annotation.model_fields if _is_model(annotation) else {}
    return [info.alias or name for name, info in fields.items()]


def _inside(annotation: object, part: str | int) -> object:
    """Return what `annotation` says about the item or field called `part`."""
    if _is_model(annotation):
        fields = annotation.model_fields
        if issubclass(annotation, RootModel):
            return _inside(fields["root"].annotation, part)
        return next((f.annotation for name, f in fields.items() if part in (name, f.alias)), None)
    # A dict says it about its values, a tuple about its items.
    arguments = get_args(annotation)
    return arguments[1 if get_origin(annotation) is dict else 0] if arguments else None


def _is_model(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
