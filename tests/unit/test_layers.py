"""The rules that import-linter cannot say: what a start of the server loads, how long code is."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted([*(ROOT / "mcp_server").rglob("*.py"), *(ROOT / "remote").rglob("*.py")])
HEAVY = ("torch", "numpy", "aiperf", "transformers", "docker", "paramiko", "optuna")
LONGEST_FILE = 400
LONGEST_FUNCTION = 40
FOLDER_NAMES = {"mcp_server", "remote", "contracts", "skills"}


def loaded_by(module: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has after importing `module`."""
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd="/"
    )
    return set(run.stdout.split())


@pytest.mark.parametrize("module", ["inferproof.server", "inferproof.cli", "inferproof.gates"])
def test_nothing_heavy_is_loaded_at_the_start(module: str) -> None:
    assert loaded_by(module) & set(HEAVY) == set()


@pytest.mark.parametrize("module", ["inferproof_remote", "inferproof_remote.__main__"])
def test_the_bench_starts_with_the_standard_library_alone(module: str) -> None:
    foreign = loaded_by(module) - loaded_by("sys") - set(sys.stdlib_module_names)
    assert foreign == {"inferproof_remote"}


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_files_and_functions_are_short() -> None:
    long = [str(path) for path in MODULES if len(path.read_text().splitlines()) > LONGEST_FILE]
    for path in MODULES:
        for node in functions(path):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST_FUNCTION:
                long.append(f"{path}:{node.lineno} {node.name} has {lines} lines")
    assert long == []


def test_nothing_is_imported_by_the_name_of_its_folder() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in FOLDER_NAMES, path
            elif isinstance(node, ast.Import):
                assert not {alias.name.partition(".")[0] for alias in node.names} & FOLDER_NAMES
