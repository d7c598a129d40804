"""Sources to something that can be called, in the sandbox, for any language."""

import hashlib
import json
import pkgutil
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from inferproof_remote import build_cpp, build_cuda, build_python, build_triton, diagnostics
from inferproof_remote.facts import cpu_model, version_line
from inferproof_remote.reused import Library, libraries
from inferproof_remote.workshop import (
    Built,
    Recipe,
    RecipeError,
    Tool,
    Workshop,
    digest_file,
    parse_recipe,
)

_MODULES = (
    *("build", "build_cpp", "build_cuda", "build_python", "build_triton", "cuda_sass"),
    *("diagnostics", "import_check", "triton_compile"),
)


def build(
    *,
    manifest: Mapping[str, object],
    source_dir: Path,
    out_dir: Path,
    limits: Mapping[str, object],
    archs: Sequence[str] = (),
) -> dict[str, object]:
    """Build the snapshot in `source_dir` and leave the artefacts in `out_dir`.

    The result has the form of the server's `BuildFacts`. `archs` overrides the manifest's.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        recipe = parse_recipe(manifest, source_dir)
    except RecipeError as error:
        language = manifest.get("language", "cpp")
        refused = diagnostics.Diagnostic(file="", line=None, severity="error", message=str(error))
        built = Built(code="compile_failed", compiler="", commands=(), diagnostics=(refused,))
        return _facts(str(language), built, out_dir, time.monotonic() - began, _digest(manifest))
    recipe = replace(recipe, archs=tuple(archs) or recipe.archs)
    tool = _tool(recipe)
    workshop = Workshop(source_dir=source_dir, out_dir=out_dir, limits=limits)
    match recipe.language:
        case "cpp":
            built = build_cpp.build(recipe, workshop, tool)
        case "cuda":
            built = build_cuda.build(recipe, workshop, tool)
        case "python":
            built = build_python.build(recipe, workshop)
        case "triton":
            built = build_triton.build(recipe, workshop)
    key = cache_key(recipe, source_dir, tool)
    seconds = time.monotonic() - began
    used = libraries(recipe, source_dir, tool.path if tool else None)
    return _facts(recipe.language, built, out_dir, seconds, key, used)


def cache_key(recipe: Recipe, source_dir: Path, tool: Tool | None) -> str:
    """Return the digest of all that decides a build: sources, recipe, compiler, processor, us."""
    sources = {
        path.relative_to(source_dir).as_posix(): digest_file(path)
        for path in source_dir.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    ours = [pkgutil.get_data("inferproof_remote", f"{name}.py") or b"" for name in _MODULES]
    return _digest(
        {
            "sources": sources,
            "recipe": asdict(recipe),
            "compiler": tool.version if tool else "",
            "processor": [platform.machine(), cpu_model()],
            "builder": hashlib.sha256(b"\0".join(ours)).hexdigest(),
        }
    )


def _tool(recipe: Recipe) -> Tool | None:
    match recipe.language:
        case "cpp":
            path = build_cpp.find_compiler()
        case "cuda":
            path = build_cuda.find_compiler()
        case "python":
            return Tool(path=build_python.find_compiler(), version=build_python.version())
        case "triton":
            return Tool(path=build_python.find_compiler(), version=build_triton.version())
    return Tool(path=path, version=version_line(str(path))) if path else None


def _facts(
    language: str,
    built: Built,
    out_dir: Path,
    seconds: float,
    key: str,
    used: Sequence[Library] = (),
) -> dict[str, object]:
    return {
        "language": language,
        "ok": built.code == "accepted",
        "code": built.code,
        "compiler": built.compiler,
        "command": [list(command) for command in built.commands],
        "seconds": seconds,
        "diagnostics": [diagnostics.as_json(value) for value in built.diagnostics],
        "resources": [diagnostics.as_json(value) for value in built.resources],
        "artefacts": {name: digest_file(out_dir / name) for name in built.artefacts},
        "cache_key": key,
        "help": built.help,
        "libraries": [asdict(each) for each in used],
    }


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
