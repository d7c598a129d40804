"""Python: does the source parse, define its functions, and import in the sandbox?"""

import json
import pkgutil
import platform
import sys
from pathlib import Path
from typing import cast

from inferproof_remote.diagnostics import Diagnostic
from inferproof_remote.workshop import Built, Recipe, Workshop, failure_code


def find_compiler() -> Path:
    """Return the Python that will run the candidate."""
    return Path(sys.executable)


def build(recipe: Recipe, workshop: Workshop) -> Built:
    """Check the candidate's source as text, then by importing it."""
    script = (pkgutil.get_data("inferproof_remote", "import_check.py") or b"").decode()
    names = [recipe.entry, *([recipe.prepare] if recipe.prepare else [])]
    commands: tuple[tuple[str, ...], ...] = ()
    for mode in ("parse", "import"):
        told = (mode, recipe.source, *names)
        commands = (*commands, (sys.executable, "-I", "import_check.py", *told))
        argv = [sys.executable, "-I", "-c", script, *told]
        completed = workshop.run(argv, product=None, label=mode)
        problems = _problems(completed.output, recipe.source) if completed.rc == 0 else None
        if problems is None:
            how = completed.incidents[0].detail if completed.incidents else _how(completed.output)
            problems = (_error(recipe.source, None, f"the {mode} check did not finish: {how}"),)
        if problems:
            code = failure_code(completed, "compile_failed" if mode == "parse" else "import_failed")
            return Built(code=code, compiler=version(), commands=commands, diagnostics=problems)
    return Built(code="accepted", compiler=version(), commands=commands)


def version() -> str:
    """Return what this Python is."""
    return f"{platform.python_implementation()} {platform.python_version()}"


def _problems(output: bytes, source: str) -> tuple[Diagnostic, ...] | None:
    """Return what the check's last line says; nothing if it is no such line."""
    lines = output.decode(errors="replace").strip().splitlines()
    try:
        raw: object = json.loads(lines[-1])
    except (IndexError, ValueError):
        return None
    if not isinstance(raw, list):
        return None
    found: list[Diagnostic] = []
    for item in cast("list[object]", raw):
        match item:
            case [int() | None as line, str() as message]:
                found.append(_error(source, line, message))
            case _:
                return None
    return tuple(found)


def _error(source: str, line: int | None, message: str) -> Diagnostic:
    return Diagnostic(file=source, line=line, severity="error", message=message[:500])


def _how(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
