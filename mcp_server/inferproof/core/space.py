"""A space of engine options as a value: what plain search may try."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StrictInt, model_validator

from inferproof.core.values import Value

Setting: TypeAlias = bool | int | float | str
OptionName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Settings = Annotated[tuple[Setting, ...], Field(min_length=1, max_length=64)]
Span = tuple[StrictInt, StrictInt] | tuple[float, float]


class Parameter(Value):
    """One option: the `values` it may take, or a `range`. `default: null` is not to give it.

    With `when`, it is given only where the options named there have one of these values. Of engine
    `command`, which knows no options, `flag` is what stands before the value on its command line;
    of a bool, it alone, and only where that is true.
    """

    values: Settings | None = None
    range: Span | None = None
    scale: Literal["linear", "log"] = "linear"
    default: Setting | None = None
    flag: Annotated[str, Field(pattern=r"^--?[A-Za-z0-9][A-Za-z0-9_.-]{0,99}=?$")] | None = None
    when: Annotated[dict[OptionName, Settings], Field(max_length=8)] = {}

    @model_validator(mode="after")
    def _one_form(self) -> "Parameter":
        if (self.values is None) == (self.range is None):
            raise ValueError("give one of values and range")
        if self.range is not None:
            low, high = self.range
            if not low < high or (self.scale == "log" and low <= 0):
                raise ValueError("a range is [least, greatest]; on a log scale, above 0")
            if isinstance(self.default, str | bool) or self.default is None:
                raise ValueError("a range needs a default, a number")
            if isinstance(low, int) and not isinstance(self.default, int):
                raise ValueError("a range of whole numbers has a whole number as its default")
            if not low <= self.default <= high:
                raise ValueError(f"the default {self.default!r} is outside the range")
        elif self.scale != "linear":
            raise ValueError("a scale is for a range")
        return self

    @property
    def choices(self) -> tuple[Setting | None, ...]:
        """What it may be, the default first; of a range, the default alone."""
        same = [each for each in self.values or () if not is_same(each, self.default)]
        return (self.default, *same)


class Space(Value):
    """The options that plain search may set, in this order."""

    parameters: Annotated[dict[OptionName, Parameter], Field(min_length=1, max_length=32)]

    @model_validator(mode="after")
    def _asks_for_earlier_ones(self) -> "Space":
        earlier: set[str] = set()
        for name, parameter in self.parameters.items():
            for other in parameter.when:
                if other not in earlier:
                    raise ValueError(f"`when` of {name} names {other!r}, which is not before it")
            earlier.add(name)
        return self


Choice: TypeAlias = dict[str, Setting | None]
"""What each asked parameter of a space is set to; `None` is not to give it."""


def choices_of(space: Space, most: int) -> tuple[Choice, ...] | None:
    """Return every choice of the space; None if there are more than `most`."""
    found: list[Choice] = [{}]
    for name, parameter in space.parameters.items():
        grown: list[Choice] = []
        for choice in found:
            if not is_asked(parameter, choice):
                grown.append(choice)
            elif parameter.range is not None:
                return None
            else:
                grown += [{**choice, name: value} for value in parameter.choices]
        if len(grown) > most:
            return None
        found = grown
    return tuple(found)


def is_same(one: Setting | None, other: Setting | None) -> bool:
    """Whether two settings are one: `true` is not 1."""
    return type(one) is type(other) and one == other


def is_asked(parameter: Parameter, given: Choice) -> bool:
    """Whether a parameter is to be chosen, the earlier ones being as they are."""
    return all(
        any(is_same(given.get(name), value) for value in values)
        for name, values in parameter.when.items()
    )
