"""What an engine says of tokens, read as typed rows from the columns of one API or another.

A token is named by its id where the engine gives one, else by the text that the engine wrote for
it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
TokenRef: TypeAlias = int | str


@dataclass(frozen=True, slots=True)
class Row:
    """What an engine says of one token: which it is, and its listed log-probabilities."""

    token: TokenRef | None
    logprob: float | None
    listed: Mapping[TokenRef, float]


def rows_of(logprobs: Json) -> tuple[Row, ...] | None:
    """Return rows of the legacy columns (OpenAI, vLLM) or of the newer list (llama.cpp)."""
    if not isinstance(logprobs, dict):
        return None
    content = logprobs.get("content")
    if isinstance(content, list):
        return tuple(_newer_row(each) for each in content)
    tokens, own, tops = (logprobs.get(key) for key in ("tokens", "token_logprobs", "top_logprobs"))
    if not (isinstance(tokens, list) and isinstance(own, list) and isinstance(tops, list)):
        return None
    if not len(tokens) == len(own) == len(tops):
        return None
    return tuple(_legacy_row(*row) for row in zip(tokens, own, tops, strict=True))


def _legacy_row(token: Json, own: Json, top: Json) -> Row:
    listed = top if isinstance(top, dict) else {}
    pairs = ((_ref(key), _number(value)) for key, value in listed.items())
    known = {ref: value for ref, value in pairs if ref is not None and value is not None}
    return Row(_ref(token), _number(own), known)


def _newer_row(row: Json) -> Row:
    if not isinstance(row, dict):
        return Row(None, None, {})
    tops = row.get("top_logprobs")
    listed: dict[TokenRef, float] = {}
    for each in tops if isinstance(tops, list) else []:
        if not isinstance(each, dict):
            continue
        ref, value = _named(each), _number(each.get("logprob"))
        if ref is not None and value is not None:
            listed[ref] = value
    return Row(_named(row), _number(row.get("logprob")), listed)


def prompt_rows_of(column: Json) -> tuple[Row | None, ...] | None:
    """Return rows of vLLM's `prompt_logprobs`: null, or {id: {logprob, …}}; the own token first."""
    if not isinstance(column, list):
        return None
    rows: list[Row | None] = []
    for each in column:
        if not isinstance(each, dict):
            rows.append(None)
            continue
        listed: dict[TokenRef, float] = {}
        for key, said in each.items():
            value = _number(said.get("logprob")) if isinstance(said, dict) else _number(said)
            if value is not None:
                listed[int(key) if key.isdecimal() else _ref(key) or ""] = value
        rows.append(Row(None, None, listed))
    return tuple(rows)


def _named(row: Mapping[str, Json]) -> TokenRef | None:
    token_id = count_of(row.get("id"))
    return _ref(row.get("token")) if token_id is None else token_id


def _ref(token: Json) -> TokenRef | None:
    """Return the token's name; `token_id:17` is how vLLM writes an id as text."""
    if not isinstance(token, str):
        return count_of(token)
    number = token.removeprefix("token_id:")
    return int(number) if number != token and number.isdecimal() else token


def ids_of(column: Json) -> tuple[int, ...] | None:
    """Return a list of token ids; None if it is no such list."""
    if not isinstance(column, list):
        return None
    ids = tuple(count_of(each) for each in column)
    return None if None in ids else tuple(each for each in ids if each is not None)


def _number(value: Json) -> float | None:
    """Return a log-probability; NaN, infinity and what is above certainty are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value <= 1e-3 else None


def count_of(value: Json) -> int | None:
    """Return a whole number that is not negative; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if value >= 0 else None
