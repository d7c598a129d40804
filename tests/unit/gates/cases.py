"""Cases for judges: one honest case, and the same with a few places changed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from inferproof.gates.base import Case

VERDICTS = Path(__file__).parents[2] / "golden" / "verdicts"
GONE = "<gone>"


def honest_tree() -> JsonValue:
    """Return the honest case as JSON: every gate passes it."""
    return json.loads((VERDICTS / "base.json").read_text())


def honest() -> Case:
    """Return the honest case."""
    return case_of(honest_tree())


def case_of(tree: JsonValue) -> Case:
    """Return the case that `tree` says, parsed as strictly as everywhere."""
    return Case.model_validate_json(json.dumps(tree))


def changed(changes: Mapping[str, JsonValue]) -> Case:
    """Return the honest case with the value at each dotted path replaced, or taken away (GONE)."""
    tree = honest_tree()
    for path, value in changes.items():
        put(tree, path.split("."), value)
    return case_of(tree)


def put(tree: JsonValue, steps: Sequence[str], value: JsonValue) -> None:
    """Set the value at `steps` of `tree`, or take it away (GONE)."""
    parent, last = at(tree, steps[:-1]), steps[-1]
    if isinstance(parent, list):
        parent[int(last) : int(last) + 1] = [] if value == GONE else [value]
    elif isinstance(parent, dict) and value == GONE:
        del parent[last]
    elif isinstance(parent, dict):
        parent[last] = value
    else:
        raise TypeError(f"nothing can be put below {'.'.join(steps[:-1])}")


def at(tree: JsonValue, steps: Sequence[str]) -> JsonValue:
    """Return the value at `steps` of `tree`."""
    for step in steps:
        if isinstance(tree, list):
            tree = tree[int(step)]
        elif isinstance(tree, dict):
            tree = tree[step]
    return tree


def paths(tree: JsonValue, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the steps to every value below `tree`."""
    items: Mapping[str, JsonValue] = {}
    if isinstance(tree, dict):
        items = tree
    elif isinstance(tree, list):
        items = {str(index): value for index, value in enumerate(tree)}
    for step, value in items.items():
        yield (*above, step)
        yield from paths(value, (*above, step))
