"""A baseline engine with some of its options set by search, purely."""

import shlex
from collections.abc import Mapping

from inferproof.core.errors import UsageError
from inferproof.core.service import EngineSpec
from inferproof.core.space import Parameter, Setting, Space


def settled(spec: EngineSpec, space: Space, settings: Mapping[str, Setting]) -> EngineSpec:
    """Return `spec` with these settings of the space, and none that the space leaves out.

    Raises:
        UsageError: nothing can be set: it runs elsewhere, or an option of a command has no flag.
    """
    if spec.engine == "endpoint":
        raise UsageError(
            "the baseline runs elsewhere, so search cannot set its options",
            hint="name an engine that inferproof starts as baseline, or leave `search` out",
        )
    if spec.engine == "command":
        start = [str(spec.options.get("start", ""))]
        for name, value in settings.items():
            start += _words(name, space.parameters[name], value)
        return spec.model_copy(update={"options": {**spec.options, "start": " ".join(start)}})
    kept = {name: each for name, each in spec.options.items() if name not in space.parameters}
    return spec.model_copy(update={"options": {**kept, **settings}})


def _words(name: str, parameter: Parameter, value: Setting) -> list[str]:
    """Return what a setting is on a command line; one that ends in `=` has its value beside it."""
    flag = parameter.flag
    if flag is None:
        raise UsageError(f"option {name} of the space has no flag", hint="engine command needs one")
    if isinstance(value, bool):
        return [flag] if value else []
    said = f"{value:g}" if isinstance(value, float) else str(value)
    return [shlex.quote(flag + said)] if flag.endswith("=") else [flag, shlex.quote(said)]
