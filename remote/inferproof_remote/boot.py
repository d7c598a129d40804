"""Bring the bench's program to this machine and become it; read from a channel, run by any Python.

It imports nothing that an old Python lacks, so that an old one can say that it is too old.
"""

import hashlib
import json
import os
import stat
import sys
from pathlib import Path

_OLDEST = (3, 11)
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class _Refused(Exception):
    """This machine cannot be worked on: what is wrong, and what mends it."""


def main() -> None:
    """Read the settings, bring the program if it is not here, and run it in our place."""
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        work = _work(asked["work"])
        program = work / "cache" / f"inferproof_remote-{asked['digest']}.pyz"
        if _digest(program) != asked["digest"]:
            _tell(asked["word"], state="send")
            _receive(program, asked["digest"])
    except _Refused as error:
        what, hint = error.args
        _tell(asked["word"], state="refused", what=what, hint=hint)
        return
    except OSError as error:
        what = f"{asked['work']} cannot be used: {error}"
        _tell(asked["word"], state="refused", what=what, hint="correct `work` in targets.yaml")
        return
    _tell(asked["word"], state="ready")
    argv = [sys.executable, "-I", str(program), "door", str(work)]
    os.execv(sys.executable, argv)  # noqa: S606 (there is no shell to start)


def _tell(word: str, **told: str) -> None:
    sys.stdout.write(word + json.dumps(told) + "\n")
    sys.stdout.flush()


def _work(named: str) -> Path:
    """Return the work folder, ours alone."""
    if sys.version_info < _OLDEST:
        version = ".".join(map(str, sys.version_info[:3]))
        what = f"{sys.executable} is Python {version}; 3.11 or later is needed"
        raise _Refused(what, "name a later one as `python` in targets.yaml")
    work = Path(named).resolve()
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (work, work / "cache", work / "jobs"):
        if not folder.exists() and not folder.is_symlink():
            folder.mkdir(mode=0o700)
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode):
            raise _Refused(f"{folder} is not a folder", "remove it, or name another `work` folder")
        if facts.st_uid != os.geteuid() or facts.st_mode & _OTHERS_MAY_WRITE:
            what = f"others may write to {folder}"
            raise _Refused(what, f"run there: chmod 700 {folder}; or name another `work` folder")
    return work


def _receive(program: Path, digest: str) -> None:
    source = sys.stdin.buffer
    data = source.read(int(source.readline()))
    if hashlib.sha256(data).hexdigest() != digest:
        raise _Refused("the program arrived altered", "try again")
    draft = program.with_name(f"{program.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(program)


def _digest(program: Path) -> str:
    try:
        return hashlib.sha256(program.read_bytes()).hexdigest()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
