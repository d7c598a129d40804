"""Jobs on their way into Slurm's queue and in it, as files of their folders.

The supervisor is the batch job itself, so it is Slurm that says whether it lives. Its node and this
one share the work folder. Jobs that come while others are handed over go together, as one array.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shlex
import shutil
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from inferproof_remote import job, slurm

SECRET, AGAIN = "secret", ".again"
_NAME, _NUMBER, _SEEN, _REFUSED = "slurm-name", "slurm", "slurm-seen.json", "slurm-refused"
_NODE, _STARTS = "node", "starts.json"
_MOST_AT_ONCE = 100
_FRESH_S = 1.0
_ARRIVES_S = 60.0
_SWEEP_S = 30.0
_POLL_S = 0.2
_CANCELLED = 143


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One time that a job came into the queue: its number there, its node, how it ended if it did.

    `is_fault`: the machine ended it.
    """

    number: str
    node: str
    ended: str
    is_fault: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Spool:
    """The way into the queue: `place` holds what waits for it, `python` runs `program` on nodes."""

    place: Path
    python: str
    program: Path

    def submit(self, folder: Path, secret: str, options: Sequence[str]) -> None:
        """Put a job into the queue, in one array with all that wait for the same.

        `secret` is in a file that is ours alone until the job begins: without it none can.

        Raises:
            SlurmRefused: it is not taken.
            SlurmSilent: it may be in the queue or not; `standing` finds out.
        """
        place = folder / SECRET
        place.touch(mode=0o600, exist_ok=False)
        place.write_text(secret, encoding="ascii")
        self.place.mkdir(exist_ok=True)
        waiting = self.place / f"{_label(folder)}.json"
        asked = {"folder": str(folder), "options": list(options)}
        job.write_atomically(waiting, json.dumps(asked))
        with self._alone() as lock:
            if waiting.exists():  # nobody has taken it along
                self._hand_over(self._alike(waiting), options, lock)
        refused = folder / _REFUSED
        if refused.exists():
            why = refused.read_text(encoding="utf-8")
            place.unlink()
            refused.unlink()
            raise slurm.SlurmRefused(why)
        if _number(folder) is None:
            raise slurm.SlurmSilent(f"Slurm does not say whether it has {_label(folder)}")

    @contextlib.contextmanager
    def _alone(self) -> Generator[int]:
        """Hold the lock of the queue, as does an sbatch that outlives us."""
        lock = os.open(self.place / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def _alike(self, first: Path) -> list[Path]:
        """Return the folders that wait with the same options as `first`, which leads."""
        options = _read(first)[1]
        folders: list[Path] = []
        for waiting in (first, *sorted(set(self.place.glob("*.json")) - {first})):
            folder, asked = _read(waiting)
            if not (folder / SECRET).exists():
                waiting.unlink()  # given up meanwhile
            elif asked == options and len(folders) < _MOST_AT_ONCE:
                folders.append(folder)
        return folders

    def _hand_over(self, folders: Sequence[Path], options: Sequence[str], lock: int) -> None:
        """Put jobs into the queue; each folder says then what became of it."""
        new = [folder for folder in folders if not (folder / _NAME).exists()]
        if new and not self._is_taken(new, options, lock):
            for folder in new:
                self._is_taken([folder], options, lock)
        for folder in folders:
            (self.place / f"{_label(folder)}.json").unlink()

    def _is_taken(self, folders: Sequence[Path], options: Sequence[str], lock: int) -> bool:
        """Hand jobs over at once; False if they were refused as an array, and should go singly."""
        many = len(folders) > 1
        name = _label(folders[0]) + (f"-and-{len(folders) - 1}-more" if many else "")
        for index, folder in enumerate(folders):
            job.write_atomically(folder / _NAME, f"{name} {index}" if many else name)
        try:
            script, count = self._script(folders), len(folders)
            number = slurm.submit(name, script, options, count=count, lock=lock)
        except slurm.SlurmSilent:
            return True  # it is looked for by its name
        except slurm.SlurmError as error:
            for folder in folders:
                (folder / _NAME).unlink()
            if not many:
                job.write_atomically(folders[0] / _REFUSED, str(error))
            return not many
        for index, folder in enumerate(folders):
            job.write_atomically(folder / _NUMBER, f"{number}_{index}" if many else number)
        return True

    def _script(self, folders: Sequence[Path]) -> str:
        """Return what a node runs: it says who it is, and becomes the supervisor of its job."""
        pairs = [word for folder in folders for word in (_label(folder), str(folder))]
        supervisor = shlex.join([self.python, "-I", str(self.program), "stay"])
        return (
            f"#!/bin/sh\nset -- {shlex.join(pairs)}\n"
            'shift "$((2 * ${SLURM_ARRAY_TASK_ID:-0}))"\n'
            'number="${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}'
            '${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}"\n'
            f'printf %s "$number" >"$2/.{_NUMBER}" && mv "$2/.{_NUMBER}" "$2/{_NUMBER}"\n'
            f'printf %s "$SLURMD_NODENAME" >"$2/{_NODE}"\n'
            f'exec >>"$2/log" 2>&1\nexport {job.MARK}="$1"\nexec {supervisor} "$2"\n'
        )


def standing(folder: Path) -> slurm.Standing | None:
    """Return where a job in the queue stands, asked at most once a second; None if it is in none.

    Raises:
        SlurmError: Slurm does not answer; where the job stands is not known.
    """
    if not (folder / _NAME).exists():
        return None
    seen = folder / _SEEN
    with contextlib.suppress(OSError, ValueError, TypeError):  # nobody asked lately
        if time.time() - seen.stat().st_mtime < _FRESH_S:
            return slurm.Standing(**json.loads(seen.read_bytes()))
    number = _number(folder) or _found(folder)
    fresh = slurm.standing(number) if number else _on_its_way(folder)
    job.write_atomically(seen, json.dumps(asdict(fresh)))
    return fresh


def cancel(folder: Path) -> None:
    """Take a job out of the queue or off its node; if it comes there later, it cannot begin.

    Raises:
        SlurmError: Slurm does not answer.
    """
    (folder / SECRET).unlink(missing_ok=True)
    number = _number(folder) or _found(folder)
    if number is not None:
        slurm.cancel(number)


def sweep(folder: Path) -> None:
    """Have Slurm end what it still has of a job, then write `rc`.

    Raises:
        SlurmError: it does not.
    """
    cancel(folder)
    deadline = time.monotonic() + _SWEEP_S
    while _number(folder) and (queued := standing(folder)) and queued.alive is not False:
        if time.monotonic() > deadline:
            raise slurm.SlurmError(f"Slurm does not end {_label(folder)}: {queued.said}")
        time.sleep(_POLL_S)
    if not (folder / "rc").exists():
        job.write_atomically(folder / "rc", f"{_CANCELLED}\n")


def starts(folder: Path, queued: slurm.Standing | None) -> list[Start]:
    """Return each time that a job came into the queue, oldest first."""
    number = _number(folder)
    if number is None:
        return []
    is_over = queued is not None and queued.alive is False
    now = Start(
        number=number,
        node=_text(folder / _NODE)[:100],
        ended=queued.said if queued and is_over else "",
        is_fault=queued is not None and queued.is_fault,
    )
    earlier = cast("list[dict[str, object]]", json.loads(_text(folder / _STARTS) or "[]"))
    return [*(Start(**each) for each in earlier), now]  # pyright: ignore[reportArgumentType]


def laid_again(folder: Path) -> tuple[Path, list[str]] | None:
    """Lay the folder for the second start of a job that the machine ended; None if it has none due.

    With it come options that keep the job off the node that failed. The first start cannot reach
    it: if that comes late, or lives on where nobody sees it, what it leaves is in its own folder.

    Raises:
        SlurmError: Slurm does not answer.
    """
    queued = standing(folder)
    is_due = folder.name != AGAIN and queued is not None and queued.is_fault
    if not is_due or queued is None or (folder / "cancel").exists():
        return None
    cancel(folder)
    draft, second = folder / f"{AGAIN}.{secrets.token_hex(4)}", folder / AGAIN
    try:
        shutil.copytree(folder / "in", draft / "in")
        shutil.copy(folder / "job.json", draft / "job.json")
        (draft / "out").mkdir()
        told = [asdict(start) for start in starts(folder, queued)]
        (draft / _STARTS).write_text(json.dumps(told), encoding="utf-8")
        draft.rename(second)
    except OSError:
        if not second.is_dir():
            raise
        return None  # somebody else has laid it
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return second, [f"--exclude={queued.ill}"] if queued.ill else []


def _on_its_way(folder: Path) -> slurm.Standing:
    """Return how a job stands that was handed over, and that Slurm does not know."""
    if time.time() - (folder / _NAME).stat().st_mtime < _ARRIVES_S:
        return slurm.Standing(alive=None, said="was handed to Slurm, which does not show it yet")
    return slurm.Standing(alive=False, said="it never came into Slurm's queue", is_fault=True)


def _found(folder: Path) -> str | None:
    """Return the number of a job that is in the queue though nobody said so."""
    name, _, index = _text(folder / _NAME).partition(" ")
    number = slurm.number_of(name) if name else None
    if number is None:
        return None
    found = f"{number}_{index}" if index else number
    job.write_atomically(folder / _NUMBER, found)
    return found


def _number(folder: Path) -> str | None:
    """Return a job's number in the queue, with its place in the array if it is in one."""
    number = _text(folder / _NUMBER).strip()
    return number if number.replace("_", "", 1).isdecimal() else None


def _job_id(folder: Path) -> str:
    return (folder.parent if folder.name == AGAIN else folder).name


def _label(folder: Path) -> str:
    """Return the name of one start of a job: that of its folder, and whether it is the second."""
    return f"{_job_id(folder)}-again" if folder.name == AGAIN else folder.name


def _read(waiting: Path) -> tuple[Path, list[str]]:
    """Return the folder of a job that waits to be handed over, and with which options."""
    asked = cast("dict[str, object]", json.loads(waiting.read_bytes()))
    return Path(str(asked["folder"])), list(job.as_texts(asked["options"], "options"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
