"""One job's keeper on the bench: starts its verb, ends its whole process tree, writes `rc` last.

`rc` is there if and only if the job is over and nothing of it runs any more.
"""

import ctypes
import hmac
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from inferproof_remote import cgroups, job, processes
from inferproof_remote.incidents import BenchError

DONE, FAILED, TIMED_OUT, CANCELLED = 0, 70, 124, 143
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_POLL_S = 0.05
_SWEEP_PAUSE_S = 0.01
_PATIENCE_S = {signal.SIGTERM: 2.0, signal.SIGKILL: 10.0}
_STOPS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def launch(job_dir: Path, program: Path, *, secret: bytes = b"") -> int:
    """Detach a supervisor for `job_dir`; return 0 once its `pid` file is there.

    The supervisor signs the result, and what it was asked, with `secret`, which is never on disk,
    in an argument or in an environment: whoever changes either cannot sign it.
    """
    asked = job.read_job(job_dir)
    heard, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(heard)
            _redirect(job_dir / "log")
            code = _supervise(asked, job_dir, program, told)
            if code == DONE:
                _sign(job_dir / "out", asked.digest, secret)
            _write_rc(job_dir, code)
        os._exit(0)
    os.close(told)
    os.wait()
    return DONE if os.read(heard, 1) else FAILED


def sweep(job_dir: Path) -> None:
    """End all that a job left behind after its supervisor was killed, then write `rc`.

    Raises:
        BenchError: something of it cannot be ended.
    """
    job_id = job.read_job(job_dir).job_id
    deadline = time.monotonic() + _PATIENCE_S[signal.SIGKILL]
    while left := _marked(job_id):
        if time.monotonic() > deadline:
            raise BenchError(f"processes of job {job_id} are left that cannot be killed")
        for process in left + processes.descendants(process.pid for process in left):
            processes.send(process, signal.SIGKILL)
        cgroups.cleanup(f"{job_id}.")
        time.sleep(_SWEEP_PAUSE_S)
    cgroups.cleanup(f"{job_id}.")
    if not (job_dir / "rc").exists():
        _write_rc(job_dir, CANCELLED)


def die_with_parent() -> None:
    """Have the kernel kill this process when its supervisor is killed."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _marked(job_id: str) -> list[processes.Process]:
    found = processes.with_environment(job.MARK, job_id)
    return [process for process in found if process.pid != os.getpid()]


def _supervise(asked: job.JobSpec, job_dir: Path, program: Path, told: int) -> int:
    deadline = time.monotonic() + asked.wall_s
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOPS, signal.SIGCHLD})
    child = _start(asked, job_dir, program)
    me = processes.find(os.getpid())
    started = me.start_ticks if me else 0
    job.write_atomically(job_dir / "pid", f"{os.getpid()} {started} {child}\n")
    os.write(told, b"1")
    os.close(told)
    ended: dict[int, int] = {}
    code = _wait(job_dir, child, deadline, ended)
    try:
        _end_tree(asked.job_id, ended)
    except BenchError as error:
        code = FAILED
        job.write_failure(job_dir, str(error))
    _explain(job_dir, code, asked, ended.get(child))
    return code


def _start(asked: job.JobSpec, job_dir: Path, program: Path) -> int:
    log, append = str(job_dir / "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", str(program), asked.verb, str(job_dir)],
        {**os.environ, job.MARK: asked.job_id, job.ASKED: asked.digest},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
    )


def _wait(job_dir: Path, child: int, deadline: float, ended: dict[int, int]) -> int:
    cancel = job_dir / "cancel"
    while True:
        _reap(ended)
        if child in ended:
            whole = ended[child] == 0 and (job_dir / "out" / "result.json").is_file()
            return DONE if whole else FAILED
        if cancel.exists():
            return CANCELLED
        if time.monotonic() >= deadline:
            return TIMED_OUT
        heard = signal.sigtimedwait({*_STOPS, signal.SIGCHLD}, _POLL_S)
        if heard is not None and heard.si_signo in _STOPS:
            return CANCELLED


def _end_tree(job_id: str, ended: dict[int, int]) -> None:
    """Ask every descendant to end, then make it; frozen ones are thawed so that they can."""
    for number, patience_s in _PATIENCE_S.items():
        deadline = time.monotonic() + patience_s
        asked: set[processes.Process] = set()
        while time.monotonic() < deadline:
            _reap(ended)
            left = set(processes.descendants([os.getpid()]))
            if not left:
                cgroups.cleanup(f"{job_id}.")
                return
            for process in left if number == signal.SIGKILL else left - asked:
                processes.send(process, number)
            if left - asked:
                cgroups.cleanup(f"{job_id}.")
            asked |= left
            signal.sigtimedwait({signal.SIGCHLD}, _POLL_S)
    raise BenchError(f"processes of job {job_id} are left that cannot be killed")


def _reap(ended: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended[pid] = os.waitstatus_to_exitcode(status)


def _explain(job_dir: Path, code: int, asked: job.JobSpec, exit_code: int | None) -> None:
    reasons: Mapping[int, str] = {
        TIMED_OUT: f"the job ran longer than its wall clock of {asked.wall_s:g} s",
        CANCELLED: "the job was cancelled",
        FAILED: f"{asked.verb} ended without a result ({_how(exit_code)}); see the log",
    }
    if code in reasons:
        job.write_failure(job_dir, reasons[code])


def _how(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    return f"killed by {signal.Signals(-exit_code).name}"


def _sign(out: Path, asked: str, secret: bytes) -> None:
    signed = asked.encode() + (out / "result.json").read_bytes()
    signature = hmac.new(secret, signed, "sha256").hexdigest()
    job.write_atomically(out / "result.hmac", f"{asked} {signature}")


def _write_rc(job_dir: Path, code: int) -> None:
    job.write_atomically(job_dir / "rc", f"{code}\n")


def _redirect(log: Path) -> None:
    source = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, target in ((source, 0), (sink, 1), (sink, 2)):
        os.dup2(number, target)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
