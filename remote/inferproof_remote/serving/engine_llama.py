"""llama.cpp's server, as the package xllamacpp brings it, on one GGUF file.

`python -I inferproof_remote.pyz engine-llama --model DIR --port N --threads N [--gguf FILE]`
"""

import argparse
import signal
import sys
from pathlib import Path
from typing import Protocol, cast


class _Model(Protocol):
    path: str


class _Cpu(Protocol):
    n_threads: int


class _Params(Protocol):
    """The part of xllamacpp's parameters that we set."""

    model: _Model
    port: int
    n_parallel: int
    n_ctx: int
    cpuparams: _Cpu
    cpuparams_batch: _Cpu


class _Package(Protocol):
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
    options = parser.parse_args(arguments)
    file = options.gguf or _only_gguf(options.model)
    if file is None:
        sys.stderr.write(f"{options.model} does not hold exactly one .gguf file; name one\n")
        return 2
    package = _package()
    if package is None:
        sys.stderr.write(f"{sys.executable} has no xllamacpp; run: pip install xllamacpp\n")
        return 2
    params = package.CommonParams()
    params.model.path = str(file)
    params.port = options.port
    params.n_parallel, params.n_ctx = options.parallel, options.context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    server = package.Server(params)
    signal.pause()
    del server
    return 0


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
