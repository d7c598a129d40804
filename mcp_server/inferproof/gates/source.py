"""The digest of a gate: it covers the gate's source and all of our source that it imports."""

import ast
import importlib.util
from functools import cache
from importlib.abc import InspectLoader

from inferproof.core.canonical import digest_bytes, digest_json

OURS = "inferproof."


@cache
def gate_digest(module: str) -> str:
    """Return the digest of `module` and everything of ours that it imports, however deep.

    A changed rule therefore changes the digest of every gate that uses it, and nothing else does.
    """
    return digest_json(covered(module))


def covered(module: str) -> dict[str, str]:
    """Return the digest of each source file behind `module`, by module name."""
    sources: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in sources:
            text = _source_of(name)
            sources[name] = digest_bytes(text.encode())
            waiting.extend(_imports(text))
    return sources


def _source_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    loader = spec.loader if spec else None
    text = loader.get_source(module) if isinstance(loader, InspectLoader) else None
    if text is None:
        raise ImportError(f"{module} has no source to name it by", name=module)
    return text


def _imports(text: str) -> list[str]:
    nodes = ast.walk(ast.parse(text))
    froms = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return [name for name in froms if name.startswith(OURS)]
