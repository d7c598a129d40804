"""Folders lent to a sandbox: whose they are and how full."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path


@contextlib.contextmanager
def lent_to(folder: Path, uid: int) -> Generator[None]:
    """Give a folder and its content to `uid` while the sandbox lives, then take it back."""
    owner = folder.stat()
    _own(folder, uid, uid)
    try:
        yield
    finally:
        _own(folder, owner.st_uid, owner.st_gid)


def _own(folder: Path, uid: int, gid: int) -> None:
    """Change the owner of a tree; a link is changed itself, never followed."""
    os.lchown(folder, uid, gid)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(Path(parent) / name, uid, gid)


def disk_bytes(folder: Path) -> int:
    """Return the space that the files of a tree take."""
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += (Path(parent) / name).lstat().st_blocks * 512
    return total


def is_full(pid: int, place: str, limit_bytes: int) -> bool:
    """Whether a process's own `place` holds its limit or has no room left.

    False if it cannot be asked, or if the process still sees the machine's own `place`, as it does
    while its sandbox is being built.
    """
    try:
        handle = os.open(f"/proc/{pid}/root{place}", os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        if os.fstat(handle).st_dev == Path(place).stat().st_dev:
            return False
        facts = os.fstatvfs(handle)
    except OSError:
        return False
    finally:
        os.close(handle)
    used_bytes = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
    return facts.f_bavail == 0 or used_bytes >= limit_bytes
