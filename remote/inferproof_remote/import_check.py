"""Runs inside the sandbox: does this Python source parse, define what it must, and import?

Prints one JSON line. Read as text and run by `python -I -c`; it uses nothing of this package.
"""

import ast
import importlib.util
import json
import sys
from pathlib import Path


def parsed(source: str, names: list[str]) -> list[tuple[int | None, str]]:
    """Return what is wrong with the source as text: line and message."""
    try:
        tree = ast.parse(Path(source).read_bytes(), filename=source)
        compile(tree, source, "exec")
    except SyntaxError as error:
        return [(error.lineno, f"{type(error).__name__}: {error.msg}")]
    except (ValueError, RecursionError, MemoryError) as error:
        return [(None, f"{type(error).__name__}: {error}")]
    kinds = (ast.FunctionDef, ast.Assign, ast.AnnAssign, ast.ImportFrom)
    defined = {name for node in tree.body if isinstance(node, kinds) for name in bound(node)}
    return [
        (None, f"no function {name!r} at the top level of {source}")
        for name in names
        if name not in defined
    ]


def bound(node: ast.FunctionDef | ast.Assign | ast.AnnAssign | ast.ImportFrom) -> list[str]:
    """Return the names that a top-level statement binds."""
    match node:
        case ast.FunctionDef(name=name):
            return [name]
        case ast.ImportFrom(names=aliases):
            return [alias.asname or alias.name for alias in aliases]
        case ast.AnnAssign(target=target):
            return [target.id] if isinstance(target, ast.Name) else []
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]


def imported(source: str, names: list[str]) -> list[tuple[int | None, str]]:
    """Return what goes wrong when the source is imported: line and message."""
    sys.path.insert(0, str(Path.cwd()))
    spec = importlib.util.spec_from_file_location("candidate", source)
    if spec is None or spec.loader is None:
        return [(None, f"{source} cannot be imported: its name does not end in .py")]
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001  whatever the candidate raises is its diagnostic
        return [(line_of(error, source), f"{type(error).__name__}: {error}")]
    missing = [name for name in names if not callable(getattr(module, name, None))]
    return [(None, f"{name!r} of {source} is not callable") for name in missing]


def line_of(error: BaseException, source: str) -> int | None:
    """Return the last line of the source that the error passed through."""
    line, at = None, error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename.endswith(source):
            line = at.tb_lineno
        at = at.tb_next
    return line


if __name__ == "__main__":
    mode, source_name, *wanted = sys.argv[1:]
    problems = (parsed if mode == "parse" else imported)(source_name, wanted)
    sys.stdout.write("\n" + json.dumps(problems) + "\n")
