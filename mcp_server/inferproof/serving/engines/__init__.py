"""One file per way to start an engine; each turns a wish into a plan, purely."""

from inferproof.core.candidate import EngineManifest
from inferproof.core.service import EngineSpec
from inferproof.serving.engines import command, endpoint, llama_cpp, sglang, transformers, vllm
from inferproof.serving.engines.base import Engine, Plan, Wish

ENGINES: tuple[Engine, ...] = (
    transformers.ENGINE,
    llama_cpp.ENGINE,
    vllm.ENGINE,
    sglang.ENGINE,
    command.ENGINE,
    endpoint.ENGINE,
)


def candidate_plan(manifest: EngineManifest) -> Plan:
    """Return how one replica of a candidate is started.

    Raises:
        UsageError: an option is unknown or has another type.
    """
    return _plan(manifest)


def baseline_plan(spec: EngineSpec) -> Plan:
    """Return how one replica of a contract's baseline is started.

    Raises:
        UsageError: an option is unknown, missing or has another type.
    """
    return _plan(spec)


def _plan(wish: Wish) -> Plan:
    return next(engine for engine in ENGINES if engine.name == wish.engine).plan(wish)
