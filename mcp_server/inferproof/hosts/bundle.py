"""The bench's code as one file: a zipapp whose digest names exactly what runs there."""

import functools
import importlib.util
import io
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from inferproof.core.canonical import digest_bytes
from inferproof.core.errors import InfrastructureError

_PACKAGE = "inferproof_remote"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_ENTRY = f"""\
import sys

from {_PACKAGE}.__main__ import main

sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A zipapp on disk. `digest` is the SHA-256 of `data`, its bytes as they must be."""

    path: Path
    digest: str
    data: bytes = field(repr=False)


def build_zipapp(cache_dir: Path) -> Bundle:
    """Return the zipapp of the bench's code, written to `cache_dir` unless it is there, unaltered.

    The same sources give the same bytes on every machine.
    """
    data = _zip_bytes(_sources())
    digest = digest_bytes(data)
    bundle = Bundle(path=cache_dir / f"{_PACKAGE}-{digest}.pyz", digest=digest, data=data)
    restore(bundle)
    return bundle


def restore(bundle: Bundle) -> None:
    """Write the zipapp to its place unless it is there, unaltered."""
    if not bundle.path.is_file() or bundle.path.read_bytes() != bundle.data:
        bundle.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = bundle.path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(bundle.data)
        temporary.replace(bundle.path)


@functools.cache
def boot_source() -> bytes:
    """Return the few lines of Python that bring a zipapp to a machine and run it there."""
    return _sources()[f"{_PACKAGE}/boot.py"]


def _sources() -> dict[str, bytes]:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise InfrastructureError(
            f"the package {_PACKAGE} is not installed beside inferproof",
            hint="run: pip install --force-reinstall inferproof",
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    files = {
        f"{_PACKAGE}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in folder.rglob("*.py")
    }
    return {"__main__.py": _ENTRY.encode(), **files}


def _zip_bytes(sources: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, sources[name])
    return buffer.getvalue()
