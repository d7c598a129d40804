"""Libraries that a candidate's sources use, each with its version and its licence.

Read from the sources: what they import, headers in a folder of their own (`<cutlass/gemm.h>`), and
what they link (`-lopenblas`). What comes with the language, the compiler or the candidate itself is
none. A version or a licence that is not found is None, never a guess.
"""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from inferproof_remote.workshop import Recipe

_INCLUDE = re.compile(
    rb'^[ \t]*#[ \t]*include[ \t]*[<"]([A-Za-z0-9_.-]+)/([A-Za-z0-9_./-]+)[>"]', re.M
)
_OF_THE_COMPILER = frozenset(
    {".", "asm", "bits", "cooperative_groups", "cuda", "experimental", "linux", "nv", "sys"}
)
_CODE = frozenset({".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inl"})
_PLACES = (Path("/usr/local/include"), Path("/usr/include"))
_VERSION = re.compile(r"#\s*define\s+\w*?_(?:VERSION_)?(MAJOR|MINOR|PATCH)(?:_VERSION)?\s+(\d+)")
_WHOLE_VERSION = re.compile(r"#\s*define\s+\w+_VERSION\s+(\d+)")
_SPDX = re.compile(
    r"SPDX-License-Identifier:\s*([A-Za-z0-9.+-]+(?:\s+(?:WITH|OR|AND)\s+[\w.+-]+)*)"
)
_COPYRIGHT = re.compile(r"^License:\s*(\S.*)$", re.M)
_MOST = 64
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A library as the sources name it; `package` is what brought it to this machine, if known."""

    name: str
    package: str | None = None
    version: str | None = None
    licence: str | None = None


def libraries(recipe: Recipe, source_dir: Path, compiler: Path | None) -> tuple[Library, ...]:
    """Return the libraries that the sources use, by name."""
    if recipe.language in ("python", "triton"):
        found = map(_of_python, sorted(_imported(source_dir)))
    else:
        places = (*_PLACES, *_toolkit(compiler))
        named = sorted(_included(source_dir))
        headers = (_of_header(first, rest, source_dir, places) for first, rest in named)
        linked = (
            _of_package(flag[2:], _linked(flag[2:])) for flag in recipe.flags if flag[:2] == "-l"
        )
        found = (each for each in (*headers, *linked) if each is not None)
    return tuple({each.name: each for each in found}.values())[:_MOST]


def _imported(source_dir: Path) -> set[str]:
    """Return the first names of the modules that are imported from outside the snapshot."""
    names: set[str] = set()
    for path in _files(source_dir, {".py"}):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # the build itself says what is wrong with it
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.partition(".")[0])
    own = {path.stem for path in source_dir.iterdir()}
    return names - own - set(sys.stdlib_module_names)


def _of_python(module: str) -> Library:
    """Return what the installed packages say of a module."""
    try:
        about = metadata.distribution(module)
    except metadata.PackageNotFoundError:
        owners = metadata.packages_distributions().get(module)
        if not owners:
            return Library(name=module)
        about = metadata.distribution(owners[0])
    return Library(
        name=module, package=about.name, version=about.version, licence=_stated_licence(about)
    )


def _stated_licence(about: metadata.Distribution) -> str | None:
    """Return the licence that a Python package states, in one line."""
    told = about.metadata
    classified = told.get_all("Classifier") or []
    stated = (
        *(told.get_all("License-Expression") or ()),
        *(told.get_all("License") or ()),
        *(each.rpartition(" :: ")[2] for each in classified if each.startswith("License :: ")),
    )
    return next((each.partition("\n")[0][:100] for each in stated if each.strip()), None)


def _included(source_dir: Path) -> set[tuple[str, str]]:
    """Return folder and rest of each header that is named with a folder."""
    found: set[tuple[str, str]] = set()
    for path in _files(source_dir, _CODE):
        for folder, rest in _INCLUDE.findall(path.read_bytes()):
            found.add((folder.decode(), rest.decode()))
    return {each for each in found if each[0] not in _OF_THE_COMPILER and ".." not in str(each)}


def _of_header(first: str, rest: str, source_dir: Path, places: Sequence[Path]) -> Library | None:
    """Return the library of a header; None for a folder of the candidate's own."""
    own = next((path for path in source_dir.rglob(f"{first}/{rest}") if path.is_file()), None)
    header = own or next(
        (at / first / rest for at in places if (at / first / rest).is_file()), None
    )
    if header is None:
        return Library(name=first)
    top = header.parents[Path(rest).as_posix().count("/")]
    version, licence = _told_version(top), _told_licence(header)
    if own is not None:
        return Library(name=first, version=version, licence=licence) if version or licence else None
    packaged = _of_package(first, header)
    return Library(
        name=first,
        package=packaged.package,
        version=version or packaged.version,
        licence=licence or packaged.licence,
    )


def _told_version(folder: Path) -> str | None:
    """Return the version that a library's own version header tells."""
    for path in sorted(folder.glob("version.*")):
        text = _text(path)
        parts = dict(_VERSION.findall(text))
        if parts:
            return ".".join(parts.get(each, "0") for each in ("MAJOR", "MINOR", "PATCH"))
        if whole := _WHOLE_VERSION.search(text):
            return whole[1]
    return None


def _told_licence(header: Path) -> str | None:
    told = _SPDX.search(_text(header))
    return told[1] if told else None


def _linked(name: str) -> Path | None:
    """Return the file that `-lNAME` links."""
    places = (Path("/usr/local/lib"), *Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib"))
    files = (at / f"lib{name}.so" for at in places)
    return next((path.resolve() for path in files if path.exists()), None)


def _of_package(name: str, file: Path | None) -> Library:
    """Return what the Debian package that holds `file` says of itself."""
    ask = shutil.which("dpkg-query")
    if file is None or ask is None:
        return Library(name=name)
    owner = _said([ask, "-S", str(file)]).partition(":")[0]
    if not owner:
        return Library(name=name)
    licence = _COPYRIGHT.search(_text(Path("/usr/share/doc") / owner / "copyright"))
    return Library(
        name=name,
        package=owner,
        version=_said([ask, "-W", "-f", "${Version}", owner]) or None,
        licence=licence[1].strip() if licence else None,
    )


def _said(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return done.stdout.strip() if done.returncode == 0 else ""


def _toolkit(compiler: Path | None) -> tuple[Path, ...]:
    """Return where the headers of nvcc's own toolkit lie, also if a script stands before it."""
    beside = [compiler.resolve().parents[1] / "include"] if compiler else []
    usual = sorted(Path("/usr/local").glob("cuda*/include"))
    return tuple(at for include in (*beside, *usual) for at in (include, include / "cccl"))


def _files(source_dir: Path, endings: "set[str] | frozenset[str]") -> Iterator[Path]:
    for path in sorted(source_dir.rglob("*")):
        if path.suffix in endings and path.is_file() and path.stat().st_size <= _MOST_BYTES:
            yield path


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
