"""What a caller may ask of our own engine: OpenAI's completions and chats, checked first."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, cast

from inferproof_remote.serving.engine_http import RefusedError

_MOST_LOGPROBS = 1000
_MOST_STOPS, _MOST_TOKENS = 16, 1 << 20
_SEEDS = 1 << 63
_MOST_CHOICES, _MOST_BIAS, _CHAT_TOKENS = 16, 100.0, 512
_ABSENT_ONLY = {
    "best_of": 1,
    "suffix": None,
    "use_beam_search": False,
    "tools": None,
    "response_format": None,
}
_NEUTRAL_ONLY = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How each next token is chosen; temperature 0 takes the most likely one."""

    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    ignore_eos: bool
    logprobs: int | None
    prompt_logprobs: int | None
    bias: tuple[tuple[int, float], ...] = ()
    min_p: float = 0.0


Message: TypeAlias = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One completion as asked; of a chat, `prompt` is its messages."""

    prompt: str | tuple[int, ...] | list[Message]
    sampling: Sampling
    n: int
    stop: tuple[str, ...]
    stream: bool
    stream_usage: bool
    echo: bool
    prompt_scores: bool
    with_ids: bool
    ids_as_names: bool


def parse(body: bytes, *, models: frozenset[str], chat: bool = False) -> Asked:
    """Return what a caller asks for, as a chat or as a completion.

    Raises:
        RefusedError: it is no request, or asks for what this engine cannot do.
    """
    table = _table(body)
    model = table.get("model")
    if model is not None and model not in models:
        raise RefusedError(f"there is no model {model!r}; there is {sorted(models)}")
    _refuse_unknown_ways(table)
    logprobs = _logprobs(table, chat=chat)
    echo = not chat and _flag(table, "echo")
    prompt_logprobs = _whole(table, "prompt_logprobs", None, least=0, most=_MOST_LOGPROBS)
    with_ids = _flag(table, "return_token_ids")
    return Asked(
        prompt=_messages(table.get("messages")) if chat else _prompt(table.get("prompt")),
        sampling=Sampling(
            max_tokens=_max_tokens(table, echo=echo, chat=chat),
            min_tokens=_whole(table, "min_tokens", 0, least=0, most=_MOST_TOKENS),
            temperature=_number(table, "temperature", 1.0, most=100.0),
            top_p=_top_p(table),
            top_k=_whole(table, "top_k", 0, least=-1, most=_MOST_TOKENS),
            seed=_whole(table, "seed", None, least=-_SEEDS, most=_SEEDS - 1),
            ignore_eos=_flag(table, "ignore_eos"),
            logprobs=logprobs,
            prompt_logprobs=logprobs if echo and prompt_logprobs is None else prompt_logprobs,
            bias=_bias(table.get("logit_bias")),
            min_p=_number(table, "min_p", 0.0, most=1.0),
        ),
        n=_choices(table, stream=_flag(table, "stream")),
        stop=_stops(table.get("stop")),
        stream=_flag(table, "stream"),
        stream_usage=_tells_usage(table.get("stream_options")),
        echo=echo,
        prompt_scores=prompt_logprobs is not None,
        with_ids=with_ids,
        ids_as_names=with_ids or _flag(table, "return_tokens_as_token_ids"),
    )


def _table(body: bytes) -> Mapping[str, object]:
    try:
        raw: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the body is no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise RefusedError("the body is no JSON object")
    return cast("dict[str, object]", raw)


def _refuse_unknown_ways(table: Mapping[str, object]) -> None:
    """Refuse what would change the tokens and is not implemented, rather than ignore it."""
    for name, neutral in {**_ABSENT_ONLY, **_NEUTRAL_ONLY}.items():
        value = table.get(name)
        if value is not None and value != neutral:
            raise RefusedError(f"{name} {value!r} is not supported; only {neutral!r}")


def _prompt(raw: object) -> str | tuple[int, ...]:
    if isinstance(raw, str) and raw:
        return raw
    if isinstance(raw, list) and raw:
        items = cast("list[object]", raw)
        if all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            return tuple(cast("list[int]", items))
        if len(items) == 1 and isinstance(items[0], list | str):
            return _prompt(cast("object", items[0]))
    raise RefusedError("prompt is one text or one list of token ids, and not empty")


def _messages(raw: object) -> list[Message]:
    messages: list[Message] = []
    for each in cast("list[object]", raw) if isinstance(raw, list) else []:
        message = cast("dict[str, object]", each) if isinstance(each, dict) else {}
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise RefusedError("a message is {role, content}, both texts")
        messages.append({"role": role, "content": content})
    if not messages:
        raise RefusedError("messages is a list of {role, content}, and not empty")
    return messages


def _max_tokens(table: Mapping[str, object], *, echo: bool, chat: bool) -> int:
    if chat and table.get("max_tokens") is None:
        return _whole(table, "max_completion_tokens", _CHAT_TOKENS, least=1, most=_MOST_TOKENS)
    return _whole(table, "max_tokens", 16, least=0 if echo else 1, most=_MOST_TOKENS)


def _logprobs(table: Mapping[str, object], *, chat: bool) -> int | None:
    """Return how many alternatives are asked for: a chat says first whether any."""
    if not chat:
        return _whole(table, "logprobs", None, least=0, most=_MOST_LOGPROBS)
    if not _flag(table, "logprobs"):
        return None
    return _whole(table, "top_logprobs", 0, least=0, most=_MOST_LOGPROBS)


def _choices(table: Mapping[str, object], *, stream: bool) -> int:
    count = _whole(table, "n", 1, least=1, most=_MOST_CHOICES)
    if count > 1 and stream:
        raise RefusedError(f"n {count} is not supported in a stream; ask without stream")
    return count


def _bias(raw: object) -> tuple[tuple[int, float], ...]:
    """Return what is added to the logits of tokens."""
    if raw is None:
        return ()
    table = cast("dict[str, object]", raw) if isinstance(raw, dict) else {"?": raw}
    if not all(token.isdecimal() for token in table):
        raise RefusedError("logit_bias is {token id: number}")
    return tuple(
        (int(token), _number(table, token, 0.0, least=-_MOST_BIAS, most=_MOST_BIAS))
        for token in table
    )


def _top_p(table: Mapping[str, object]) -> float:
    value = _number(table, "top_p", 1.0, most=1.0)
    if value == 0:
        raise RefusedError("top_p 0 is outside (0, 1]")
    return value


def _tells_usage(raw: object) -> bool:
    options = cast("dict[str, object]", raw) if isinstance(raw, dict) else {}
    return options.get("include_usage") is True


def _stops(raw: object) -> tuple[str, ...]:
    items = [raw] if isinstance(raw, str) else raw or []
    if not isinstance(items, list):
        raise RefusedError("stop is a text or a list of texts")
    texts = [item for item in cast("list[object]", items) if isinstance(item, str) and item]
    if len(texts) != len(cast("list[object]", items)) or len(texts) > _MOST_STOPS:
        raise RefusedError(f"stop is at most {_MOST_STOPS} texts, none of them empty")
    return tuple(texts)


def _flag(table: Mapping[str, object], name: str) -> bool:
    value = table.get(name)
    if value is None or isinstance(value, bool):
        return value is True
    raise RefusedError(f"{name} {value!r} is not true or false")


_Default = TypeVar("_Default", int, None)


def _whole(
    table: Mapping[str, object], name: str, default: _Default, *, least: int, most: int
) -> int | _Default:
    value = table.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RefusedError(f"{name} {value!r} is not a whole number from {least} to {most}")
    return value


def _number(
    table: Mapping[str, object], name: str, default: float, *, most: float, least: float = 0.0
) -> float:
    value = table.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RefusedError(f"{name} {value!r} is not a number")
    if not math.isfinite(value) or not least <= value <= most:
        raise RefusedError(f"{name} {value!r} is outside [{least:g}, {most:g}]")
    return float(value)
