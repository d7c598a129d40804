"""This machine as a host: job folders under the campaign's state, supervisors that outlive us."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from inferproof.core.canonical import Json
from inferproof.core.errors import InfrastructureError, NotFound, UsageError
from inferproof.core.values import JobStatus
from inferproof.hosts.base import JobRequest, JobState, Progress
from inferproof.hosts.bundle import Bundle, build_zipapp, restore

MARK = "INFERPROOF_JOB"
_JOB_ID = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")
_DONE, _TIMED_OUT, _CANCELLED = 0, 124, 143
_LAUNCH_S = 30.0
_CANCEL_S = 15.0
_SWEEP_S = 30.0
_POLL_S = 0.02
_KEPT_ENVIRONMENT = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME")
_PROGRESS = TypeAdapter(Progress)
_Pid = Annotated[int, Field(ge=0)]
_PID_FILE = TypeAdapter(tuple[_Pid, _Pid, _Pid])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Supervisor:
    """Who keeps a job: pid and start time name one process for ever."""

    pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        fields = text.rpartition(")")[2].split()
        return fields[0] != "Z" and int(fields[19]) == self.start_ticks


class Local:
    """Runs jobs on this machine; any number of instances may share one state folder."""

    def __init__(self, state_dir: Path, *, python: Path | None = None) -> None:
        self._jobs = state_dir / "jobs"
        self._python = str(python or sys.executable)
        self._bundle: Bundle = build_zipapp(state_dir / "cache")

    @property
    def remote_digest(self) -> str:
        """The digest of the bench code that jobs on this host run."""
        return self._bundle.digest

    async def start(self, request: JobRequest) -> None:
        """Write the job folder and launch its supervisor.

        Raises:
            UsageError: the id is malformed or taken.
            InfrastructureError: the supervisor did not start.
        """
        await asyncio.to_thread(self._start, request)

    async def state(self, job_id: str) -> JobState:
        """Return where the job stands now.

        Raises:
            NotFound: no job of that id was started here.
        """
        return _state(self._folder(job_id))

    async def log_tail(self, job_id: str, *, limit_bytes: int) -> str:
        """Return the last `limit_bytes` of the job's log; empty while there is none."""
        return _tail(self._folder(job_id) / "log", limit_bytes)

    async def cancel(self, job_id: str) -> JobState:
        """End the job and everything it started; return its final state.

        Raises:
            NotFound: no job of that id was started here.
            InfrastructureError: something of the job could not be ended.
        """
        folder = self._folder(job_id)
        if not (folder / "rc").exists():
            (folder / "cancel").touch()
            await self._stop(folder)
        return _state(folder)

    async def tell(self, job_id: str, name: str, data: Mapping[str, Json]) -> None:
        """Leave `data` as the file `name` of a running job, whole or not at all.

        Raises:
            NotFound: no job of that id was started here.
        """
        folder = self._folder(job_id)
        temporary = folder / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(data, allow_nan=False), encoding="utf-8")
        temporary.replace(folder / name)

    async def result_dir(self, job_id: str) -> Path:
        """Return the folder that holds the job's `result.json` and `files/`."""
        return self._folder(job_id) / "out"

    def _folder(self, job_id: str) -> Path:
        folder = self._jobs / job_id
        if not _JOB_ID.fullmatch(job_id) or not folder.is_dir():
            raise NotFound(f"no job {job_id!r} in {self._jobs}", hint="list jobs: campaign_status")
        return folder

    def _start(self, request: JobRequest) -> None:
        if not _JOB_ID.fullmatch(request.job_id):
            raise UsageError(f"job id {request.job_id!r} does not match {_JOB_ID.pattern}")
        folder = self._jobs / request.job_id
        if folder.exists():
            raise UsageError(f"job {request.job_id!r} exists already in {self._jobs}")
        _write_folder(folder, request)
        launched = self._bench("supervise", folder, timeout_s=_LAUNCH_S, told=request.secret)
        if launched.returncode != 0:
            raise InfrastructureError(
                f"the supervisor of job {request.job_id!r} did not start: {_last(launched.stderr)}",
                hint=f"read {folder / 'log'}; run: inferproof doctor",
            )

    def _bench(
        self, verb: str, folder: Path, *, timeout_s: float, told: str = ""
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        marked = {**kept, MARK: folder.name} if verb == "supervise" else kept
        restore(self._bundle)  # others of this account can write there
        try:
            return subprocess.run(
                [self._python, "-I", str(self._bundle.path), verb, str(folder)],
                env=marked,
                input=told,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InfrastructureError(
                f"{self._python} could not {verb} job {folder.name!r}: {error}",
                hint="check `python` of this target in targets.yaml",
            ) from error

    async def _stop(self, folder: Path) -> None:
        supervisor = _supervisor(folder)
        deadline = time.monotonic() + _CANCEL_S
        if supervisor is not None and supervisor.is_alive:
            _signal(supervisor, signal.SIGTERM)
        while supervisor is not None and time.monotonic() < deadline:
            if not supervisor.is_alive:
                break
            await asyncio.sleep(_POLL_S)
        if not (folder / "rc").exists():
            await asyncio.to_thread(self._sweep, folder)

    def _sweep(self, folder: Path) -> None:
        swept = self._bench("sweep", folder, timeout_s=_SWEEP_S)
        if swept.returncode != 0:
            raise InfrastructureError(
                f"what job {folder.name!r} left running could not be ended: {_last(swept.stderr)}",
                hint=f"look for processes with {MARK}={folder.name} in their environment",
            )


def _write_folder(folder: Path, request: JobRequest) -> None:
    """Make the job folder appear whole, its inputs readable by the sandbox's own user."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    for name in ("in", "out"):
        (temporary / name).mkdir(parents=True)
    for name, data in request.inputs.items():
        _write_input(temporary / "in", PurePosixPath(name), data)
    body: dict[str, Json] = {
        "schema": 1,
        "job_id": request.job_id,
        "verb": request.verb,
        "wall_s": request.wall_s,
        "spec": request.spec,
    }
    (temporary / "job.json").write_text(json.dumps(body, allow_nan=False), encoding="utf-8")
    temporary.rename(folder)


def _write_input(root: Path, name: PurePosixPath, data: bytes) -> None:
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise UsageError(f"{str(name)!r} is not a path below the job's inputs")
    parent = root
    for part in name.parts[:-1]:
        parent = parent / part
        parent.mkdir(exist_ok=True)
        parent.chmod(0o755)
    (parent / name.name).write_bytes(data)
    (parent / name.name).chmod(0o644)


def _state(folder: Path) -> JobState:
    rc, progress = _read_rc(folder), _read_progress(folder)
    if rc is not None:
        failure = "" if rc == _DONE else _tail(folder / "failure", 1000).strip()
        return JobState(status=_final(rc), rc=rc, progress=progress, failure=failure)
    supervisor = _supervisor(folder)
    if supervisor is None and time.time() - (folder / "job.json").stat().st_mtime < _LAUNCH_S:
        return JobState(status=JobStatus.QUEUED)
    if supervisor is not None and supervisor.is_alive:
        return JobState(status=JobStatus.RUNNING, progress=progress)
    rc = _read_rc(folder)
    if rc is not None:
        return _state(folder)
    return JobState(
        status=JobStatus.LOST,
        progress=progress,
        failure="the supervisor is gone and left no exit code (killed, or the machine restarted)",
    )


def _final(rc: int) -> JobStatus:
    match rc:
        case 0:
            return JobStatus.DONE
        case 143:
            return JobStatus.CANCELLED
        case _:
            return JobStatus.FAILED


def _read_rc(folder: Path) -> int | None:
    text = _tail(folder / "rc", 16).strip()
    return int(text) if text.isdecimal() else None


def _read_progress(folder: Path) -> Progress | None:
    try:
        return _PROGRESS.validate_json((folder / "progress.json").read_bytes())
    except (OSError, ValidationError):
        return None


def _supervisor(folder: Path) -> _Supervisor | None:
    try:
        pid, start_ticks, _ = _PID_FILE.validate_python(_tail(folder / "pid", 100).split())
    except ValidationError:
        return None
    return _Supervisor(pid=pid, start_ticks=start_ticks)


def _signal(supervisor: _Supervisor, number: signal.Signals) -> None:
    try:
        handle = os.pidfd_open(supervisor.pid)
    except OSError:
        return
    try:
        if supervisor.is_alive:
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def _tail(path: Path, limit_bytes: int) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - limit_bytes))
            return stream.read(limit_bytes).decode(errors="replace")
    except OSError:
        return ""


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"
