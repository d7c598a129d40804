"""One reading of an engine's event stream, whoever received it.

Lines end as the standard of server-sent events says and nowhere else; comments and fields other
than `data` say nothing. Nothing counts after `[DONE]`, and no choice but the first.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

_END_OF_LINE = re.compile(r"\r\n|\n|\r")
_DONE = "[DONE]"
Field = tuple[str, str]
Json = Mapping[str, object]


class BadEvent(ValueError):
    """An event that is no part of a completion; says in a few words of ours what it is."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one event adds to the answer; `ids` and `usage` are as the engine wrote them."""

    text: str = ""
    ids: list[object] | None = None
    finish_reason: str = ""
    usage: object = None
    is_done: bool = False


def events(stream: bytes) -> Iterator[list[Field]]:
    """Yield each event's fields; one that the stream ends in the middle of is an event too."""
    fields: list[Field] = []
    for line in _END_OF_LINE.split(stream.decode("utf-8", "replace")):
        if line:
            name, _, value = line.partition(":")
            fields.append((name, value.removeprefix(" ")))
        elif fields:
            yield fields
            fields = []
    if fields:
        yield fields


def read_part(fields: Iterable[Field]) -> Part:
    """Return what an event adds to the answer; an event without data adds nothing.

    Raises:
        BadEvent: it tells of an error or is no JSON object.
    """
    data = "\n".join(value for name, value in fields if name == "data").strip()
    if not data:
        return Part()
    if data == _DONE:
        return Part(is_done=True)
    event = _parse(data)
    if event.get("error") is not None:
        raise BadEvent("an error within a 200 stream")
    return _part(event)


def _part(event: Json) -> Part:
    usage, choices = event.get("usage"), event.get("choices")
    for choice in cast("list[object]", choices) if isinstance(choices, list) else []:
        if isinstance(choice, dict) and not (first := cast("Json", choice)).get("index"):
            ids = first.get("token_ids")
            return Part(
                text=str(first.get("text") or ""),
                ids=cast("list[object]", ids) if isinstance(ids, list) else None,
                finish_reason=str(first.get("finish_reason") or ""),
                usage=usage,
            )
    return Part(usage=usage)


def _parse(data: str) -> Json:
    try:
        event: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadEvent("a chunk that is not JSON") from error
    if not isinstance(event, dict):
        raise BadEvent("a chunk that is not JSON")
    return cast("Json", event)
