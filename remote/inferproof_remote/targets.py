"""What a session can run, and how it is laid out for the sandbox."""

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from inferproof_remote.incidents import BenchError

INSIDE = PurePosixPath("/candidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class CppTarget:
    """A C function in a shared library."""

    library: Path
    entry: str
    prepare: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonTarget:
    """A Python function in a file of a folder; it gets torch tensors."""

    folder: Path
    source: str
    entry: str
    prepare: str | None = None


@dataclass(frozen=True, slots=True)
class NullTarget:
    """Returns at once: its time is the cost of thaw and freeze."""

    prepare: None = None


Target = CppTarget | PythonTarget | NullTarget


def stage(target: Target, folder: Path) -> None:
    """Copy what the target needs into `folder`, readable by whatever user runs it.

    Links are left out: they would let a candidate borrow the grader's eyes.

    Raises:
        BenchError: a file is missing or is none.
    """
    try:
        match target:
            case CppTarget():
                _copy(target.library, folder / target.library.name)
            case PythonTarget():
                for path in sorted(target.folder.rglob("*")):
                    if path.is_file() and not path.is_symlink():
                        _copy(path, folder / path.relative_to(target.folder))
            case NullTarget():
                pass
    except OSError as error:
        raise BenchError(f"cannot stage the candidate: {error}") from error
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _copy(source: Path, target: Path) -> None:
    if source.is_symlink():
        raise BenchError(f"{source} is a link, not a file")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def runner_spec(target: Target, folder: PurePosixPath) -> dict[str, object]:
    """Return the runner's instructions for a target whose files lie in `folder`."""
    match target:
        case CppTarget():
            return {
                "kind": "library",
                "library": str(folder / target.library.name),
                "entry": target.entry,
                "prepare": target.prepare,
            }
        case PythonTarget():
            return {
                "kind": "module",
                "folder": str(folder),
                "source": target.source,
                "entry": target.entry,
                "prepare": target.prepare,
            }
        case NullTarget():
            return {"kind": "null"}
