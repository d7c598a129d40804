"""llama.cpp's own server, as the package xllamacpp brings it; it reads a GGUF file."""

from pydantic import TypeAdapter, ValidationError

from inferproof.core.candidate import RelativePath
from inferproof.core.errors import UsageError
from inferproof.serving.engines.base import Engine, Options, Plan, Wish, own_engine, started_in

_PATH = TypeAdapter[str](RelativePath)


def plan(wish: Wish) -> Plan:
    """Return how a replica starts. Options: `gguf`, `parallel`, `context`.

    `gguf` is a path in the candidate's folder (of a baseline: in the model's); without it, the
    model's folder holds exactly one.
    """
    options = Options(wish)
    gguf = options.get("gguf", "")
    parallel, context = options.get("parallel", 8), options.get("context", 16384)
    options.done()
    sizes = ("--parallel", str(parallel), "--context", str(context))
    named = ("--gguf", "{candidate}/" + _inside(gguf)) if gguf else ()
    return Plan(
        engine="llama_cpp",
        supervised=True,
        argv=own_engine("engine-llama", *sizes, *named),
        start_s=started_in(wish),
        trusted=True,
    )


def _inside(path: str) -> str:
    try:
        return _PATH.validate_python(path)
    except ValidationError as error:
        raise UsageError(
            f"option gguf is {path!r}, which is no path inside a folder",
            hint="put the file into the candidate's folder or the model's, and name it from there",
        ) from error


ENGINE = Engine(name="llama_cpp", plan=plan)
