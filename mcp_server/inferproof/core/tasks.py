"""Quality tasks as values: one line of a task file asks one thing and says how its answer is read.

File form: docs/formats.md. The bench asks both arms the same, at temperature 0.
"""

import re
from typing import Annotated, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from inferproof.core.values import Value

Text = Annotated[str, Field(min_length=1, max_length=1 << 20)]
Short = Annotated[str, Field(min_length=1, max_length=10_000)]
SCHEMA_WORDS = frozenset(
    {
        *("type", "enum", "const", "properties", "required", "additionalProperties"),
        *("items", "minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength"),
    }
)


class Message(Value):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: Text


class Choice(Value):
    """Several ways to go on, of which the model must find number `answer` the likeliest."""

    options: Annotated[tuple[Short, ...], Field(min_length=2, max_length=26)]
    answer: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _answer_is_an_option(self) -> "Choice":
        if self.answer >= len(self.options):
            raise ValueError(f"answer {self.answer} is none of {len(self.options)} options")
        return self


class ToolCall(Value):
    """The call that the model must make; `arguments` must be among those it gives."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    arguments: dict[str, JsonValue] = {}


class Needle(Value):
    """A fact hidden at `depth` (0 the start, 1 the end) of `tokens` of the corpus, then asked for.

    `fact` and `question` hold `{key}`, `fact` holds `{value}` too. Both are drawn at run time, from
    `keys` and `values`, or from fresh letters and digits.
    """

    depth: Annotated[float, Field(ge=0, le=1)]
    tokens: Annotated[int, Field(ge=16, le=1 << 20)]
    fact: Short = "\nThe pass number of {key} is {value}.\n"
    question: Short = "\nThe pass number of {key} is"
    keys: Annotated[tuple[Short, ...], Field(max_length=1000)] = ()
    values: Annotated[tuple[Short, ...], Field(max_length=1000)] = ()

    @model_validator(mode="after")
    def _says_what(self) -> "Needle":
        if not all(f"{{{name}}}" in self.fact for name in ("key", "value")):
            raise ValueError("`fact` holds {key} and {value}")
        if "{key}" not in self.question or "{value}" in self.question:
            raise ValueError("`question` holds {key}, and not {value}")
        return self


class Checker(Value):
    """How an answer is read; exactly one way."""

    exact: Annotated[tuple[Short, ...], Field(min_length=1, max_length=64)] | None = None
    regex: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    json_schema: dict[str, JsonValue] | None = None
    tool_call: ToolCall | None = None
    choice: Choice | None = None
    needle: Needle | None = None

    @field_validator("regex")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from error
        return pattern

    @field_validator("json_schema")
    @classmethod
    def _is_understood(cls, schema: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        unknown = sorted(_words(schema or {}) - SCHEMA_WORDS)
        if unknown:
            known = ", ".join(sorted(SCHEMA_WORDS))
            raise ValueError(f"{', '.join(unknown)} are not understood; known: {known}")
        return schema

    @model_validator(mode="after")
    def _one_way(self) -> "Checker":
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError(f"give exactly one of {', '.join(type(self).model_fields)}")
        return self

    @property
    def kind(self) -> str:
        """Which way it is."""
        return next(iter(self.model_dump(exclude_none=True)))


class Task(Value):
    """One line of a task file."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$")]
    prompt: Text | None = None
    messages: Annotated[tuple[Message, ...], Field(min_length=1, max_length=256)] | None = None
    tools: Annotated[tuple[dict[str, JsonValue], ...], Field(max_length=64)] = ()
    checker: Checker
    max_tokens: Annotated[int, Field(ge=1, le=1 << 16)] = 32
    stop: Annotated[tuple[Short, ...], Field(max_length=4)] = ()

    @model_validator(mode="after")
    def _asks_one_thing(self) -> "Task":
        asked = sum(each is not None for each in (self.prompt, self.messages, self.checker.needle))
        if asked != 1:
            raise ValueError("give one of prompt and messages, or a needle, which makes its own")
        if self.checker.choice and self.prompt is None:
            raise ValueError("a choice goes on from a prompt")
        if bool(self.tools) != (self.checker.tool_call is not None) or (
            self.tools and self.messages is None
        ):
            raise ValueError("tools and messages belong to a tool_call, and a tool_call to them")
        return self


def _words(schema: JsonValue) -> set[str]:
    """Return the keywords of a schema; names of properties are none."""
    if not isinstance(schema, dict):
        return set()
    found = set(schema)
    properties = schema.get("properties")
    for each in properties.values() if isinstance(properties, dict) else ():
        found |= _words(each)
    return found | _words(schema.get("items"))
