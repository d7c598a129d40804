"""The job folders of one work folder: begin a job, look at it, end it, read what it says.

A keeper on this machine calls this directly, one elsewhere through `door.py`: it is the only code
that reads and writes job folders from outside a job.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import cast

from inferproof_remote import job, processes, slurm, spool
from inferproof_remote.blobs import Blobs, file_digest
from inferproof_remote.folders import disk_bytes
from inferproof_remote.workplace import is_void

LAUNCH_S = 30.0
SWEEP_S = 30.0
_ID = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")
_FILE = re.compile(r"^[a-z0-9][a-z0-9_.-]{0,63}$")
_KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME")
_LAUNCHED, _SETTLED = "launched", "settled"
_LONGEST_FAILURE = 1000
_CANCELLED = 143


class Refused(Exception):
    """What was asked cannot be done: a code that the keeper knows, what happened, what to do."""

    def __init__(self, code: str, what: str, *, hint: str = "") -> None:
        super().__init__(what)
        self.code = code
        self.what = what
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a job folder says now. `alive` is None while no supervisor has signed in.

    A supervisor is alive for a moment after it wrote `rc`. `waits` says for what a job in a queue
    waits; `failure` also why a queue ended it, and `is_fault` whether the machine failed under it.
    `starts` are the times that it came into a queue.
    """

    rc: int | None
    alive: bool | None
    age_s: float
    failure: str
    progress: Mapping[str, object] | None
    waits: str = ""
    is_fault: bool = False
    starts: Sequence[spool.Start] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settled:
    """A folder that has served its purpose: since when, and how much of the disk it has."""

    folder: Path
    at_s: float
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """The jobs below `root`, whose supervisors `python` runs from `program`, a zipapp."""

    root: Path
    python: str
    program: Path
    program_digest: str

    @property
    def blobs(self) -> Blobs:
        """The inputs of jobs by digest."""
        return Blobs(self.root / "cache" / "blobs")

    def folder(self, job_id: str) -> Path:
        """Return the folder of a job, of its second start if it had one.

        Raises:
            Refused: there is none; a link is none.
        """
        first = self._first(job_id)
        second = first / spool.AGAIN
        return second if second.is_dir() else first

    def _first(self, job_id: str) -> Path:
        folder = self.root / "jobs" / job_id
        is_job = _ID.fullmatch(job_id) and folder.is_dir() and not folder.is_symlink()
        if not is_job or is_void(folder):
            what = f"no job {job_id[:80]!r} in {self.root / 'jobs'}"
            raise Refused("not_found", what, hint="list jobs: campaign_status")
        return folder

    def begin(
        self,
        asked: object,
        secret: str,
        inputs: Mapping[str, str],
        queue: Sequence[str] | None = None,
    ) -> None:
        """Make a job's folder and launch its supervisor, once, however often this is asked.

        `inputs` maps paths below the job's `in/` to digests of blobs. With `queue`, options of
        sbatch, it is Slurm that launches.

        Raises:
            Refused: the job is malformed, its id is another job's, or it did not start.
        """
        try:
            spec = job.parse_job(asked)
        except job.JobFormatError as error:
            raise Refused("usage", str(error)) from error
        folder = self.root / "jobs" / spec.job_id
        is_new = not folder.exists() and self._write(folder, asked, inputs)
        if is_void(folder):
            raise Refused("failed", f"job {spec.job_id!r} was given up before it began")
        if not is_new and _digest_of(folder) != spec.digest:
            raise Refused("usage", f"job {spec.job_id!r} exists already in {self.root / 'jobs'}")
        self._launch(folder, secret, queue)

    def look(self, job_id: str) -> Look:
        """Return what the folder of a job says now."""
        folder = self.folder(job_id)
        queued = spool.standing(folder) if _asks_queue(folder) else None
        alive = queued.alive if queued else _is_alive(folder)
        rc = None if queued and _read_rc(folder) == _CANCELLED else _read_rc(folder)
        said = queued.said if queued and alive is False else ""
        return Look(
            rc=rc,
            alive=alive,
            age_s=max(0.0, time.time() - (folder / "job.json").stat().st_mtime),
            failure=_text(folder / "failure", _LONGEST_FAILURE).strip() if rc else said,
            progress=_progress(folder),
            waits=queued.said if queued and alive is None else "",
            is_fault=queued is not None and queued.is_fault,
            starts=spool.starts(folder, queued),
        )

    def again(self, job_id: str, secret: str, queue: Sequence[str]) -> None:
        """Start a job that the machine ended a second time, elsewhere, if that is due.

        Raises:
            SlurmError: the queue does not take it, or does not say.
        """
        laid = spool.laid_again(self.folder(job_id))
        if laid is None:
            return
        folder, elsewhere = laid
        try:
            self._launch(folder, secret, [*queue, *elsewhere])
        except slurm.SlurmRefused:
            shutil.rmtree(folder)
            raise

    def stop(self, job_id: str) -> None:
        """Ask a job to end."""
        folder = self.folder(job_id)
        if not (folder / "rc").exists():
            (folder / "cancel").touch()
            queued = spool.standing(folder)
            if queued is not None and queued.alive is None:
                spool.cancel(folder)
            supervisor = _supervisor(folder) if queued is None else None
            if supervisor is not None:
                processes.send(supervisor, signal.SIGTERM)

    def sweep(self, job_id: str) -> None:
        """End what a job left after its supervisor went away, or could not be asked.

        Raises:
            Refused: something of it could not be ended.
        """
        folder = self.folder(job_id)
        if spool.standing(folder) is not None:
            spool.sweep(folder)
            return
        swept = self._bench("sweep", folder, timeout_s=SWEEP_S)
        if swept.returncode != 0:
            what = f"what job {job_id!r} left running could not be ended: {_last(swept.stderr)}"
            hint = f"look for processes with {job.MARK}={job_id} in their environment"
            raise Refused("failed", what, hint=hint)

    def log(self, job_id: str, *, offset_bytes: int, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of a job's log from an offset; a negative one is its end."""
        try:
            with (self.folder(job_id) / "log").open("rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(max(0, size + offset_bytes) if offset_bytes < 0 else offset_bytes)
                return stream.read(limit_bytes)
        except OSError:
            return b""

    def tell(self, job_id: str, name: str, data: Mapping[str, object]) -> None:
        """Leave `data` as the file `name` in a job's folder, whole or not at all."""
        if not _FILE.fullmatch(name):
            raise Refused("usage", f"{name[:80]!r} is not the name of a file for a job")
        job.write_atomically(self.folder(job_id) / name, json.dumps(data, allow_nan=False))

    def settle(self, job_id: str, *, keep_s: float, keep_bytes: int) -> None:
        """Note that a job's outcome is recorded; of the settled folders, the newest may stay.

        Those settled more than `keep_s` ago go, and the oldest ones beyond `keep_bytes` in all.
        """
        folder = self._first(job_id)
        job.write_atomically(folder / _SETTLED, str(disk_bytes(folder)))
        room = keep_bytes
        for settled in _newest_first(self.root / "jobs"):
            room -= settled.size_bytes
            if room < 0 or settled.at_s < time.time() - keep_s:
                shutil.rmtree(settled.folder, ignore_errors=True)
        self.blobs.forget(unused_s=keep_s)

    def measure(self, verb: str, *, timeout_s: float) -> Mapping[str, object]:
        """Return what `verb` of the zipapp says of this machine as JSON."""
        said = self._bench(verb, self.root, timeout_s=timeout_s)
        try:
            return cast("Mapping[str, object]", json.loads(said.stdout))
        except ValueError as error:
            what = f"{self.python} could not {verb} this machine: {_last(said.stderr)}"
            raise Refused("failed", what) from error

    def _write(self, folder: Path, asked: object, inputs: Mapping[str, str]) -> bool:
        """Make the job folder appear whole, its inputs readable by the sandbox's own user.

        False if the same was asked twice at once, and the other was first.
        """
        draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
        try:
            for name in ("in", "out"):
                (draft / name).mkdir(parents=True)
            for name, digest in inputs.items():
                _write_input(draft / "in", PurePosixPath(name), self._blob(digest))
            text = json.dumps(asked, allow_nan=False)
            (draft / "job.json").write_text(text, encoding="utf-8")
            draft.rename(folder)
        except OSError as error:
            if folder.is_dir():
                return False
            raise Refused("failed", f"{folder} cannot be written: {error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return True

    def _blob(self, digest: str) -> bytes:
        data = self.blobs.get(digest)
        if data is None:
            raise Refused("failed", f"input {digest} is not here any more", hint="ask again")
        return data

    def _launch(self, folder: Path, secret: str, queue: Sequence[str] | None) -> None:
        try:
            (folder / _LAUNCHED).touch(exist_ok=False)
        except FileExistsError:
            return  # whoever asked before us has launched it, or is about to
        if (folder / "cancel").exists() or (folder / "rc").exists():
            raise Refused("failed", f"job {folder.name!r} was given up before it began")
        try:
            if queue is not None:
                self._require_own_program()
                place = self.root / "queue"
                way = spool.Spool(place=place, python=self.python, program=self.program)
                way.submit(folder, secret, queue)
                return
            launched = self._bench("supervise", folder, timeout_s=LAUNCH_S, told=secret)
        except (Refused, slurm.SlurmRefused):
            (folder / _LAUNCHED).unlink()
            raise
        if launched.returncode != 0:
            (folder / _LAUNCHED).unlink()
            what = f"the supervisor of job {folder.name!r} did not start: {_last(launched.stderr)}"
            hint = f"read {folder / 'log'}; run: inferproof doctor"
            raise Refused("failed", what, hint=hint)

    def _require_own_program(self) -> None:
        if file_digest(self.program) != self.program_digest:
            what = f"{self.program} is not what the keeper put there"
            raise Refused("altered", what, hint="find out who writes there, then ask again")

    def _bench(
        self, verb: str, folder: Path, *, timeout_s: float, told: str = ""
    ) -> subprocess.CompletedProcess[str]:
        self._require_own_program()
        kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        marked = {**kept, job.MARK: folder.name} if verb == "supervise" else kept
        try:
            return subprocess.run(
                [self.python, "-I", str(self.program), verb, str(folder)],
                env=marked,
                input=told,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            what = f"{self.python} could not {verb} {folder.name!r}: {error}"
            hint = "check `python` of this target in targets.yaml"
            raise Refused("failed", what, hint=hint) from error


def as_json(look: Look) -> dict[str, object]:
    """Return a look as it travels."""
    return asdict(look)


def _write_input(root: Path, name: PurePosixPath, data: bytes) -> None:
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise Refused("usage", f"{str(name)!r} is not a path below the job's inputs")
    parent = root
    for part in name.parts[:-1]:
        parent = parent / part
        parent.mkdir(exist_ok=True)
        parent.chmod(0o755)
    (parent / name.name).write_bytes(data)
    (parent / name.name).chmod(0o644)


def _newest_first(jobs: Path) -> list[_Settled]:
    """Return the folders whose outcomes are recorded; a link is none of ours."""
    found: list[_Settled] = []
    for folder in jobs.iterdir():
        size = _text(folder / _SETTLED, 32)
        if size.isdecimal() and not folder.is_symlink():
            at_s = (folder / _SETTLED).stat().st_mtime
            found.append(_Settled(folder=folder, at_s=at_s, size_bytes=int(size)))
    return sorted(found, key=lambda settled: settled.at_s, reverse=True)


def _asks_queue(folder: Path) -> bool:
    """Whether only a queue knows how a job stands: it goes on, or was ended and nobody asked."""
    rc = _read_rc(folder)
    return rc is None or (rc == _CANCELLED and not (folder / "cancel").exists())


def _digest_of(folder: Path) -> str | None:
    try:
        return job.read_job(folder).digest
    except job.JobFormatError:
        return None


def _read_rc(folder: Path) -> int | None:
    text = _text(folder / "rc", 16).strip()
    return int(text) if text.isdecimal() else None


def _is_alive(folder: Path) -> bool | None:
    supervisor = _supervisor(folder)
    if supervisor is None:
        return None
    now = processes.find(supervisor.pid)
    return now is not None and now.state != "Z" and now.start_ticks == supervisor.start_ticks


def _supervisor(folder: Path) -> processes.Process | None:
    """Return who keeps a job: pid and start time name one process for ever."""
    numbers = _text(folder / "pid", 100).split()
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return None
    pid, start_ticks, _ = map(int, numbers)
    return processes.Process(pid=pid, parent=0, start_ticks=start_ticks, state="")


def _progress(folder: Path) -> Mapping[str, object] | None:
    try:
        found: object = json.loads((folder / "progress.json").read_bytes())
    except (OSError, ValueError):
        return None
    return cast("Mapping[str, object]", found) if isinstance(found, dict) else None


def _text(path: Path, limit_bytes: int) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(limit_bytes).decode(errors="replace")
    except OSError:
        return ""


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"
