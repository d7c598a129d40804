"""llama.cpp's server, as the package xllamacpp brings it, on one GGUF file.

`python -I inferproof_remote.pyz engine-llama --model DIR --port N --threads N [--gguf FILE]`, and
options of the server, each with the default of llama.cpp or what serves a few callers.
"""

import argparse
import signal
import sys
from pathlib import Path
from typing import Protocol, cast

_FLASH = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}


class _Model(Protocol):
    path: str


class _Cpu(Protocol):
    n_threads: int
    poll: int


class _Params(Protocol):
    """The part of xllamacpp's parameters that we set."""

    model: _Model
    port: int
    n_parallel: int
    n_ctx: int
    n_batch: int
    n_ubatch: int
    flash_attn_type: object
    cache_type_k: object
    cache_type_v: object
    kv_unified: bool
    cache_prompt: bool
    cpuparams: _Cpu
    cpuparams_batch: _Cpu


class _Package(Protocol):
    llama_flash_attn_type: object
    ggml_type: object

    def CommonParams(self) -> _Params: ...

    def Server(self, params: _Params) -> object: ...


def main(arguments: list[str]) -> int:
    """Serve a GGUF file until killed."""
    parser = argparse.ArgumentParser(prog="inferproof_remote engine-llama")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--context", type=int, default=16384)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--ubatch", type=int, default=512)
    parser.add_argument("--poll", type=int, default=50)
    parser.add_argument("--flash-attention", choices=tuple(_FLASH), default="auto")
    parser.add_argument("--cache-type", default="f16")
    parser.add_argument("--unified-cache", action="store_true")
    parser.add_argument("--no-prompt-cache", action="store_true")
    options = parser.parse_args(arguments)
    file = options.gguf or _only_gguf(options.model)
    if file is None:
        sys.stderr.write(f"{options.model} does not hold exactly one .gguf file; name one\n")
        return 2
    package = _package()
    if package is None:
        sys.stderr.write(f"{sys.executable} has no xllamacpp; run: pip install xllamacpp\n")
        return 2
    server = package.Server(_params(package, options, file))
    signal.pause()
    del server
    return 0


def _params(package: _Package, options: argparse.Namespace, file: Path) -> _Params:
    params = package.CommonParams()
    params.model.path = str(file)
    params.port = options.port
    params.n_parallel, params.n_ctx = options.parallel, options.context
    params.n_batch, params.n_ubatch = options.batch, options.ubatch
    params.flash_attn_type = getattr(
        package.llama_flash_attn_type,
        f"LLAMA_FLASH_ATTN_TYPE_{_FLASH[options.flash_attention]}",
    )
    kind = getattr(package.ggml_type, f"GGML_TYPE_{options.cache_type.upper()}")
    params.cache_type_k = params.cache_type_v = kind
    params.kv_unified, params.cache_prompt = options.unified_cache, not options.no_prompt_cache
    for processors in (params.cpuparams, params.cpuparams_batch):
        processors.n_threads, processors.poll = options.threads, options.poll
    return params


def _package() -> _Package | None:
    try:
        import xllamacpp  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError:
        return None
    return cast("_Package", xllamacpp)


def _only_gguf(folder: Path) -> Path | None:
    found = sorted(folder.glob("*.gguf"))
    return found[0] if len(found) == 1 else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
