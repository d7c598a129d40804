"""One file per way to start an engine; each turns a wish into a plan, purely."""

from inferproof.serving.engines import command, endpoint, llama_cpp, transformers
from inferproof.serving.engines.base import Engine, Plan, Wish

ENGINES: tuple[Engine, ...] = (
    transformers.ENGINE,
    llama_cpp.ENGINE,
    command.ENGINE,
    endpoint.ENGINE,
)


def plan(wish: Wish) -> Plan:
    """Return how one replica of the wished engine is started.

    Raises:
        UsageError: an option is unknown or has another type.
    """
    return next(engine for engine in ENGINES if engine.name == wish.engine).plan(wish)
