"""Any engine that a command starts: from the candidate's folder, or a tool of the target."""

import shlex

from inferproof.core.candidate import EngineManifest
from inferproof.core.errors import UsageError
from inferproof.serving.engines.base import (
    HEALTH,
    START_S,
    Engine,
    Options,
    Plan,
    Wish,
    health_path,
)


def plan(wish: Wish) -> Plan:
    """Return how a replica starts.

    A candidate's manifest says `start` and `health` itself. A contract's baseline says them as
    options: `start` (words as in a shell, which does not run), `health`, `start_s`.
    """
    options = Options(wish)
    if isinstance(wish, EngineManifest):
        argv, health, start_s = wish.start, wish.health, wish.start_s
    else:
        argv = _words(options.get("start", ""))
        health = health_path(options.get("health", HEALTH))
        start_s = options.get("start_s", START_S)
    options.done()
    return Plan(engine="command", supervised=True, argv=argv, health=health, start_s=start_s)


def _words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"option start is {text!r}: {error}", hint="close the quotes") from error
    if not words:
        raise UsageError(
            "engine command has no start",
            hint='give options: {start: "vllm serve {model} --port {port}"}',
        )
    return words


ENGINE = Engine(name="command", plan=plan)
