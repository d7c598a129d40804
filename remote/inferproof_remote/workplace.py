"""A work folder as a place: which one it is, and the jobs that will never begin in it."""

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from inferproof_remote import job

_NAME = "work.id"
_VOID = "void"
_LONGEST = 64


def identity(root: Path) -> str:
    """Return the name of a work folder, made once: another folder at its path has another one."""
    place = root / _NAME
    try:
        return place.read_text(encoding="ascii", errors="replace")[:_LONGEST]
    except FileNotFoundError:
        draft = root / f".{_NAME}.{secrets.token_hex(8)}"
    draft.write_text(secrets.token_hex(16), encoding="ascii")
    with contextlib.suppress(FileExistsError):
        os.link(draft, place)  # whole, and never in place of another's
    draft.unlink()
    return identity(root)


def void(root: Path, job_id: str) -> bool:
    """Keep a job from ever beginning here; False if it has begun.

    Raises:
        JobFormatError: that is no name of a job.
    """
    folder = root / "jobs" / job.as_job_id(job_id)
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        draft.mkdir(parents=True)
        (draft / _VOID).touch()
        draft.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
        return is_void(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def is_void(folder: Path) -> bool:
    """Whether the job of this folder was given up before it began."""
    return (folder / _VOID).exists()
