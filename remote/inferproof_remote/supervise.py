"""One job's keeper on the bench: starts its verb, ends its whole process tree, writes `rc` last.

`rc` is there if and only if the job is over and nothing of it runs any more.
"""

import contextlib
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
from inferproof_remote.leases import wish_of
from inferproof_remote.remains import end_remains
from inferproof_remote.tenure import Tenure
from inferproof_remote.turns import Turn

DONE, FAILED, TIMED_OUT, CANCELLED = 0, 70, 124, 143
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
MOST_LOG_BYTES = 64 << 20
_POLL_S = 0.05
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
            _keep(asked, job_dir, program, secret=secret, told=told, takes_turns=True)
        os._exit(0)
    os.close(told)
    os.wait()
    return DONE if os.read(heard, 1) else FAILED


def stay(job_dir: Path, program: Path) -> int:
    """Be the supervisor of `job_dir` in this process, as a batch system wants it.

    The secret is in a file that is ours alone, and gone before anything of the job begins.
    """
    asked, place = job.read_job(job_dir), job_dir / "secret"
    secret = place.read_bytes()
    place.unlink()
    _redirect(job_dir / "log")
    return _keep(asked, job_dir, program, secret=secret, told=os.open(os.devnull, os.O_WRONLY))


def _keep(
    asked: job.JobSpec,
    job_dir: Path,
    program: Path,
    *,
    secret: bytes,
    told: int,
    takes_turns: bool = False,
) -> int:
    seal = _Seal(job_dir / "out", asked.digest, secret)
    code = _Supervisor(asked, job_dir, program, seal, takes_turns=takes_turns).run(told)
    if code == DONE:
        seal.sign_result()
    _write_rc(job_dir, code)
    return code


def sweep(job_dir: Path) -> None:
    """End all that a job left behind after its supervisor was killed, then write `rc`.

    Raises:
        BenchError: something of it cannot be ended.
    """
    job_id = job.read_job(job_dir).job_id
    end_remains(job_id, patience_s=_PATIENCE_S[signal.SIGKILL])
    if not (job_dir / "rc").exists():
        _write_rc(job_dir, CANCELLED)


def die_with_parent() -> None:
    """Have the kernel kill this process when its supervisor is killed."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Seal:
    """Signs what a job leaves, for what was asked, with a secret that is nowhere on disk."""

    def __init__(self, out: Path, asked: str, secret: bytes) -> None:
        self._out, self._asked, self._secret = out, asked, secret

    def sign_result(self) -> None:
        """Leave the signature of the result beside it."""
        signed = self._asked.encode() + (self._out / "result.json").read_bytes()
        job.write_atomically(self._out / "result.hmac", f"{self._asked} {self._hmac(signed)}")

    def keep_account(self, body: str) -> None:
        """Leave the signed account of the GPUs that are held, in place of the one before."""
        self._out.mkdir(exist_ok=True)
        signature = self._hmac(f"lease {self._asked}{body}".encode())
        job.write_atomically(self._out / "lease.signed", f"{self._asked} {signature}\n{body}")

    def _hmac(self, data: bytes) -> str:
        return hmac.new(self._secret, data, "sha256").hexdigest()


class _Supervisor:
    """Carries one job out, its GPUs held from before its first process until after its last.

    Where it `takes_turns`, so is its turn among the jobs of this machine; a queue sees to its own.
    """

    def __init__(
        self, asked: job.JobSpec, job_dir: Path, program: Path, seal: _Seal, *, takes_turns: bool
    ) -> None:
        self._asked, self._job_dir, self._program, self._seal = asked, job_dir, program, seal
        self._takes_turns = takes_turns
        self._allowed_s = asked.wall_s
        self._tenure: Tenure | None = None
        self._ended: dict[int, int] = {}
        self._child, self._is_empty = 0, True
        self._mark = os.environ.get(job.MARK) or asked.job_id  # a second start has one of its own

    def run(self, told: int) -> int:
        """Return the job's exit code once nothing of it runs any more; tell `told` of the start."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.pthread_sigmask(signal.SIG_BLOCK, {*_STOPS, signal.SIGCHLD})
        self._write_pid()
        os.write(told, b"1")
        os.close(told)
        try:
            code = self._await_turn() or self._await_gpus() or self._carry_out()
            if code == DONE and self._tenure is not None:
                self._tenure.check()  # what was measured on GPUs that were lost does not count
        except (BenchError, OSError, job.JobFormatError) as error:
            code = FAILED
            job.write_failure(self._job_dir, str(error))
        if self._tenure is not None and self._is_empty:
            self._tenure.end()
        self._explain(code)
        return code

    def _await_turn(self) -> int:
        """Return 0 once the job may run here; the turn ends with this process, however it ends."""
        if not self._takes_turns:
            return DONE
        turn = Turn(self._asked, self._job_dir)
        while not turn.is_ready():
            if self._is_called_off():
                return CANCELLED
        return DONE

    def _await_gpus(self) -> int:
        """Return 0 once the GPUs that the job asks for are held, else why it must not begin."""
        if (self._job_dir / "cancel").exists():
            return CANCELLED  # given up before this supervisor came to begin it
        wish = wish_of(self._asked.spec, self._asked.wall_s)
        if wish is None:
            return DONE
        self._allowed_s = wish.held_s
        self._tenure = Tenure(wish, self._job_dir, self._seal.keep_account)
        while not self._tenure.is_ready():
            if self._is_called_off():
                return CANCELLED
        return DONE

    def _carry_out(self) -> int:
        since_s = self._tenure.since_s if self._tenure else time.monotonic()
        deadline = since_s + self._allowed_s
        self._child, self._is_empty = self._start(), False
        self._write_pid()
        try:
            return self._wait(deadline)
        finally:
            _end_tree(self._mark, self._ended)
            _cut(self._job_dir / "log")
            self._is_empty = True  # else the next holder of the GPUs looks for what is left

    def _write_pid(self) -> None:
        me = processes.find(os.getpid())
        started = me.start_ticks if me else 0
        job.write_atomically(self._job_dir / "pid", f"{os.getpid()} {started} {self._child}\n")

    def _start(self) -> int:
        log, append = str(self._job_dir / "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND
        leased: Mapping[str, str] = self._tenure.environment if self._tenure else {}
        marks = {job.MARK: self._mark, job.ASKED: self._asked.digest}
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", str(self._program), self._asked.verb, str(self._job_dir)],
            {**os.environ, **leased, **marks},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
        )

    def _wait(self, deadline: float) -> int:
        while True:
            _reap(self._ended)
            if self._child in self._ended:
                whole = self._ended[self._child] == 0
                return DONE if whole and (self._job_dir / "out/result.json").is_file() else FAILED
            if time.monotonic() >= deadline:
                return TIMED_OUT
            if self._is_called_off():
                return CANCELLED
            if self._tenure is not None:
                self._tenure.watch()

    def _is_called_off(self) -> bool:
        """Wait for a moment, or until a process ends; whether somebody wants the job to end."""
        _cut(self._job_dir / "log")
        if (self._job_dir / "cancel").exists():
            return True
        heard = signal.sigtimedwait({*_STOPS, signal.SIGCHLD}, _POLL_S)
        return heard is not None and heard.si_signo in _STOPS

    def _explain(self, code: int) -> None:
        limit = f"its wall clock of {self._allowed_s:g} s"
        if self._allowed_s < self._asked.wall_s:
            limit = f"the {self._allowed_s:g} s that the campaign's accelerator budget leaves"
        how = _how(self._ended.get(self._child))
        reasons: Mapping[int, str] = {
            TIMED_OUT: f"the job ran longer than {limit}",
            CANCELLED: "the job was cancelled",
            FAILED: f"{self._asked.verb} ended without a result ({how}); see the log",
        }
        if code in reasons:
            job.write_failure(self._job_dir, reasons[code])


def _end_tree(mark: str, ended: dict[int, int]) -> None:
    """Ask every descendant to end, then make it; frozen ones are thawed so that they can."""
    for number, patience_s in _PATIENCE_S.items():
        deadline = time.monotonic() + patience_s
        asked: set[processes.Process] = set()
        while time.monotonic() < deadline:
            _reap(ended)
            left = set(processes.descendants([os.getpid()]))
            if not left:
                cgroups.cleanup(f"{mark}.")
                return
            for process in left if number == signal.SIGKILL else left - asked:
                processes.send(process, number)
            if left - asked:
                cgroups.cleanup(f"{mark}.")
            asked |= left
            signal.sigtimedwait({signal.SIGCHLD}, _POLL_S)
    raise BenchError(f"processes of job {mark} are left that cannot be killed")


def _reap(ended: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended[pid] = os.waitstatus_to_exitcode(status)


def _how(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exit code {exit_code}"
    return f"killed by {signal.Signals(-exit_code).name}"


def _write_rc(job_dir: Path, code: int) -> None:
    job.write_atomically(job_dir / "rc", f"{code}\n")


def _cut(log: Path) -> None:
    """Keep the beginning of an endless log: no job fills the disk with words."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > MOST_LOG_BYTES:
            os.truncate(log, MOST_LOG_BYTES)


def _redirect(log: Path) -> None:
    source = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, target in ((source, 0), (sink, 1), (sink, 2)):
        os.dup2(number, target)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
