"""What every engine adapter gives: the plan by which the bench starts one replica.

Placeholders in `argv` and `env` are filled in on the bench: `{port}`, `{model}`, `{candidate}`,
`{python}`, `{pyz}` (the bench's own code) and `{threads}`. `{python:NAME}` is the Python of the
environment `NAME` inside the bench's own, as `.venv/vllm`, or else the bench's.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias, TypeVar, cast

from pydantic import Field

from inferproof.core.candidate import EngineManifest
from inferproof.core.canonical import Json
from inferproof.core.errors import UsageError
from inferproof.core.service import EngineSpec
from inferproof.core.values import Value

HEALTH = "/health"
START_S = 300.0
_HEALTH = re.compile(r"^/[^\s\x00]{0,200}$")

Wish: TypeAlias = EngineManifest | EngineSpec
"""An engine as a candidate's manifest or as a contract's baseline asks for it."""


class Plan(Value):
    """How one replica is started. `trusted` is our own code, which may read the bench's code.

    With `url` nothing is started: what answers there is measured and not supervised.
    """

    engine: str
    supervised: bool
    argv: tuple[str, ...]
    env: dict[str, str] = {}
    health: str = HEALTH
    url: str | None = None
    start_s: Annotated[float, Field(gt=0)] = START_S
    trusted: bool = False

    def as_json(self) -> dict[str, Json]:
        """Return the plan as the bench reads it."""
        return self.model_dump(mode="json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One adapter: its name in manifests and contracts, and how it plans a replica."""

    name: str
    plan: Callable[[Wish], Plan]


_T = TypeVar("_T", bool, int, float, str)


class Options:
    """An engine's options, read by name and type; what nobody reads is an error."""

    def __init__(self, wish: Wish) -> None:
        self._engine = wish.engine
        self._given: Mapping[str, bool | int | float | str] = wish.options
        self._known: list[str] = []

    def get(self, name: str, default: _T) -> _T:
        """Return an option of the default's type.

        Raises:
            UsageError: it has another type.
        """
        self._known.append(name)
        value = self._given.get(name, default)
        if type(value) is int and isinstance(default, float):
            value = float(value)
        if type(value) is not type(default):
            what = f"option {name} of engine {self._engine} is {value!r}"
            raise UsageError(what, hint=f"give a {type(default).__name__}, such as {default!r}")
        return cast("_T", value)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return an option that is one of these words, the first if it is absent.

        Raises:
            UsageError: it is none of them.
        """
        value = self.get(name, allowed[0])
        if value not in allowed:
            what = f"option {name} of engine {self._engine} is {value!r}"
            raise UsageError(what, hint=f"give one of: {', '.join(allowed)}")
        return value

    def done(self) -> None:
        """Refuse what was not read.

        Raises:
            UsageError: there is an option that this engine does not have.
        """
        odd = sorted(set(self._given) - set(self._known))
        if odd:
            known = ", ".join(sorted(self._known)) or "none"
            what = f"engine {self._engine} has no option {odd[0]!r}"
            raise UsageError(what, hint=f"its options are: {known}")


def health_path(text: str) -> str:
    """Return `text` if it is a path that an engine can be asked for.

    Raises:
        UsageError: it is none.
    """
    if not _HEALTH.fullmatch(text):
        raise UsageError(f"health {text!r} is no path", hint="such as /health")
    return text


def started_in(wish: Wish) -> float:
    """Return the seconds that the engine has to come up."""
    return wish.start_s if isinstance(wish, EngineManifest) else START_S


def own_engine(verb: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs an engine of ours from the bench's own code."""
    common = ("--model", "{model}", "--port", "{port}", "--threads", "{threads}")
    return ("{python}", "-I", "{pyz}", verb, *common, *arguments)
