"""llama.cpp's own server, as the package xllamacpp brings it; it reads a GGUF file."""

from pydantic import TypeAdapter, ValidationError

from inferproof.core.candidate import RelativePath
from inferproof.core.errors import UsageError
from inferproof.serving.engines.base import Engine, Options, Plan, Wish, own_engine, started_in

_PATH = TypeAdapter[str](RelativePath)
_CACHE_TYPES = ("f16", "bf16", "f32", "q8_0", "q4_0")


def plan(wish: Wish) -> Plan:
    """Return how a replica starts.

    Options: `gguf`, `parallel`, `context`, `batch` and `ubatch` (tokens of a prompt at once),
    `threads` (0: those of the target), `poll` (0 to 100: how busily a thread waits),
    `flash_attention`, `cache_type` (of keys and values), `unified_cache`, `prompt_cache`.

    `gguf` is a path in the candidate's folder (of a baseline: in the model's); without it, the
    model's folder holds exactly one.
    """
    options = Options(wish)
    gguf, threads = options.get("gguf", ""), options.get("threads", 0)
    numbers = {
        "--parallel": options.get("parallel", 8),
        "--context": options.get("context", 16384),
        "--batch": options.get("batch", 2048),
        "--ubatch": options.get("ubatch", 512),
        "--poll": options.get("poll", 50),
    }
    words = {
        "--flash-attention": options.one_of("flash_attention", ("auto", "on", "off")),
        "--cache-type": options.one_of("cache_type", _CACHE_TYPES),
    }
    switches = {
        "--unified-cache": options.get("unified_cache", False),
        "--no-prompt-cache": not options.get("prompt_cache", True),
    }
    options.done()
    sizes = [word for name, size in numbers.items() for word in (name, str(size))]
    chosen = [word for pair in words.items() for word in pair]
    named = ("--gguf", "{candidate}/" + _inside(gguf)) if gguf else ()
    own_threads = ("--threads", str(threads)) if threads else ()
    flags = [name for name, on in switches.items() if on]
    return Plan(
        engine="llama_cpp",
        supervised=True,
        argv=own_engine("engine-llama", *sizes, *chosen, *flags, *named, *own_threads),
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
