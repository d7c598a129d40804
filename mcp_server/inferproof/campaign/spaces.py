"""The spaces of engine options that ship with the package: one YAML file for each engine."""

from importlib import resources
from typing import Literal

from pydantic import Field

from inferproof.campaign.parse import parse_bytes
from inferproof.core.errors import NotFound
from inferproof.core.service import Search
from inferproof.core.space import Space

_FOLDER = "spaces"


class SpaceFile(Space):
    """A shipped space. File form: docs/formats.md."""

    kind: Literal["space"]
    engine: str
    doc: str = Field(min_length=1, max_length=1000)


def shipped_spaces() -> tuple[str, ...]:
    """Return the names of all shipped spaces."""
    folder = resources.files("inferproof.serving").joinpath(_FOLDER)
    names = (each.name for each in folder.iterdir() if each.name.endswith(".yaml"))
    return tuple(sorted(name.removesuffix(".yaml") for name in names))


def shipped_space(name: str) -> SpaceFile:
    """Return a shipped space.

    Raises:
        NotFound: there is none of that name.
    """
    if name not in shipped_spaces():
        known = ", ".join(shipped_spaces())
        raise NotFound(f"no space {name!r} ships with inferproof", hint=f"there are: {known}")
    file = resources.files("inferproof.serving").joinpath(_FOLDER, f"{name}.yaml")
    return parse_bytes(SpaceFile, file.read_bytes(), path=file.name).value


def space_of(search: Search) -> Space:
    """Return the space that a contract's search has: its own, or a shipped one.

    Raises:
        NotFound: it names one that does not ship.
    """
    return search.space if isinstance(search.space, Space) else shipped_space(search.space)
