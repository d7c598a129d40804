"""C++ to a shared library, by g++ or clang++."""

import shutil
from pathlib import Path, PurePosixPath

from inferproof_remote import diagnostics
from inferproof_remote.workshop import Built, Recipe, Tool, Workshop, explained, failure_code

LIBRARY = "candidate.so"
_FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-shared", "-fopenmp")
_REPORTING = ("-Wall", "-fdiagnostics-color=never", "-Wl,-z,defs")
_HELP = "install a compiler on the target: apt-get install g++"


def find_compiler() -> Path | None:
    """Return g++, else clang++, else nothing."""
    found = shutil.which("g++") or shutil.which("clang++")
    return Path(found) if found else None


def build(recipe: Recipe, workshop: Workshop, tool: Tool | None) -> Built:
    """Compile the candidate's source into `candidate.so`."""
    if tool is None:
        return Built(code="compiler_missing", compiler="", commands=(), help=_HELP)
    command = (
        str(tool.path),
        *_FLAGS,
        *_REPORTING,
        *recipe.flags,
        recipe.source,
        "-o",
        f"{{out}}/{LIBRARY}",
    )
    completed = workshop.run(command, product=LIBRARY, label="cpp")
    text = completed.output.decode(errors="replace")
    found = diagnostics.parse_diagnostics(text, snapshot=PurePosixPath(workshop.source_dir))
    found = explained(completed, found, tool.path.name)
    if completed.rc != 0 or not (workshop.out_dir / LIBRARY).is_file():
        code = failure_code(completed, "compile_failed")
        return Built(code=code, compiler=tool.version, commands=(command,), diagnostics=found)
    return Built(
        code="accepted",
        compiler=tool.version,
        commands=(command,),
        diagnostics=found,
        artefacts=(LIBRARY,),
    )
