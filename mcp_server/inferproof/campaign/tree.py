"""Files as bytes, read once: regular files only, never through a link, within limits.

What is hashed, parsed and copied afterwards are these bytes, so that a file that changes in
between cannot be seen in two forms.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from inferproof.core.errors import FileFormatError

IGNORED = frozenset({"__pycache__", ".git"})
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_NAME_LENGTH, _PATH_LENGTH = 100, 155  # what the plainest tar can hold
_DEPTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """How much a folder may hold."""

    files: int = 500
    size_bytes: int = 16 << 20


def read_file(path: Path, *, limit_bytes: int) -> bytes:
    """Return the bytes of a regular file that is not a symbolic link.

    Raises:
        FileFormatError: it is missing, unreadable, something else than a file, or too large.
    """
    try:
        return _read_at(None, str(path), str(path), limit_bytes)
    except OSError as error:
        raise _unreadable(str(path), error) from error


def read_tree(folder: Path, *, limits: TreeLimits | None = None) -> dict[str, bytes]:
    """Return {relative path: bytes} of every file below `folder`, sorted by path.

    `__pycache__` and `.git` are left out; anything else that is no plain file is refused.

    Raises:
        FileFormatError: a link, a device, a hidden or oddly named file, or more than `limits`.
    """
    walk = _Walk(folder, limits or TreeLimits())
    try:
        root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            files = dict(walk.read(root, PurePosixPath()))
        finally:
            os.close(root)
    except OSError as error:
        raise _unreadable(error.filename or str(folder), error) from error
    return dict(sorted(files.items()))


class _Walk:
    def __init__(self, folder: Path, limits: TreeLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._files = 0
        self._left_bytes = limits.size_bytes

    def read(self, folder_fd: int, below: PurePosixPath) -> Iterator[tuple[str, bytes]]:
        if len(below.parts) > _DEPTH:
            raise self._refuse(below, f"folders are nested more than {_DEPTH} deep")
        for name in sorted(os.listdir(folder_fd)):
            if name in IGNORED:
                continue
            path = below / name
            self._check_name(path)
            if stat.S_ISDIR(os.lstat(name, dir_fd=folder_fd).st_mode):
                yield from self._descend(folder_fd, path)
            else:
                yield str(path), self._read(folder_fd, path)

    def _descend(self, folder_fd: int, path: PurePosixPath) -> Iterator[tuple[str, bytes]]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        child = os.open(path.name, flags, dir_fd=folder_fd)
        try:
            yield from self.read(child, path)
        finally:
            os.close(child)

    def _read(self, folder_fd: int, path: PurePosixPath) -> bytes:
        self._files += 1
        if self._files > self._limits.files:
            raise self._refuse(path, f"more than {self._limits.files} files in {self._folder}")
        shown = str(self._folder / path)
        data = _read_at(folder_fd, path.name, shown, self._limits.size_bytes)
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            limit_mib = self._limits.size_bytes / (1 << 20)
            raise self._refuse(path, f"more than {limit_mib:g} MiB in {self._folder}")
        return data

    def _check_name(self, path: PurePosixPath) -> None:
        if path.name.startswith("."):
            raise self._refuse(path, "hidden files are refused")
        if not _NAME.fullmatch(path.name):
            allowed = "letters, digits, '_', and further on '.' and '-'"
            raise self._refuse(path, f"file name {path.name!r} is refused (allowed: {allowed})")
        if len(path.name) > _NAME_LENGTH:
            raise self._refuse(path, f"its name is longer than {_NAME_LENGTH} characters")
        if len(str(path)) > _PATH_LENGTH:
            raise self._refuse(path, f"its path is longer than {_PATH_LENGTH} characters")

    def _refuse(self, path: PurePosixPath, what: str) -> FileFormatError:
        shown = ascii(str(self._folder / path))[1:-1][:400]
        return FileFormatError(what, path=shown, hint="remove or rename it, then repeat")


def _read_at(folder_fd: int | None, name: str, shown: str, limit_bytes: int) -> bytes:
    if stat.S_ISLNK(os.lstat(name, dir_fd=folder_fd).st_mode):
        raise FileFormatError(
            "symbolic links are refused", path=shown, hint="put the file itself there"
        )
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=folder_fd)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileFormatError("not a regular file", path=shown, hint="only files may be there")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > limit_bytes:
        raise FileFormatError(f"larger than {limit_bytes / 1024:g} KiB", path=shown)
    return data


def _unreadable(path: str, error: OSError) -> FileFormatError:
    if isinstance(error, FileNotFoundError):
        return FileFormatError("there is no such file or folder", path=path)
    return FileFormatError(f"cannot be read: {error.strerror}", path=path)
