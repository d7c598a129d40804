"""A place where hostile code runs and from which nothing leaks: files, processes, memory, time."""

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from inferproof_remote import cgroups, procfs, seccomp
from inferproof_remote.benches import (
    NAMESPACES,
    BenchKind,
    become_nobody,
    become_user,
    describe,
    unused_uid,
)
from inferproof_remote.cgroups import Group
from inferproof_remote.folders import disk_bytes, is_full, lent_to
from inferproof_remote.freezers import Freezer, SignalFreezer, group_freezer
from inferproof_remote.incidents import BenchError, Incident
from inferproof_remote.mounts import TEMPORARY, SandboxPlan, mount_arguments
from inferproof_remote.tail import Tail

__all__ = ["BenchKind", "Completed", "Sandbox", "SandboxPlan", "describe"]

_MIB = 1 << 20
_SPARE_PROCESSES = 4
_TAIL_BYTES = 64 * 1024
_POLL_S = 0.02
_REAP_S = 10.0
# Not 0: a core pattern that pipes to a collector ignores 0, but never dumps at 1.
_NO_CORE_BYTES = 1
_BOUND_FILES, _BOUND_SIGNALS = 256, 256
_WAIT_FOR_GO = 'read -r _ && exec "$@" </dev/null'


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a command in the sandbox ended. `rc` is None if it had to be killed."""

    rc: int | None
    output: bytes
    output_bytes: int
    seconds: float
    incidents: tuple[Incident, ...]


class Sandbox:
    """One sandbox for one command; everything in it is gone when the `with` block ends."""

    def __init__(self, plan: SandboxPlan, *, name: str, kind: BenchKind | None = None) -> None:
        self.kind = kind or describe()
        self._plan = plan
        self._name = name
        self._groups: dict[str, Group] = {}
        self._freezer: Freezer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._uid = unused_uid() if self.kind.separation == "separate-user" else None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._groups = cgroups.make(self._name, self.kind.freezer)
            stack.callback(cgroups.remove, self._groups)
            self._limit_groups()
            if self._uid is not None:
                for folder in self._plan.writable:
                    stack.enter_context(lent_to(folder, self._uid))
            stack.callback(self.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def spawn(
        self,
        argv: Sequence[str],
        *,
        stdout: int,
        pass_fds: Sequence[int] = (),
        cwd: PurePosixPath | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start the sandbox's one command; it begins only once it is inside every limit."""
        if self._process is not None:
            raise BenchError("a sandbox runs one command")
        with _open_files(self._details(cwd)) as fds:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT_FOR_GO, "sh", *self._wrapped(argv, fds)],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stdout,
                pass_fds=(*pass_fds, *fds),
                cwd="/" if self._uses_bwrap else (cwd or "/"),
                env=self._environment(),
                start_new_session=True,
            )
            self._process = process
            self._admit(process.pid)
            _release(process)
        self._freezer = self._make_freezer(process.pid)
        return process

    def freeze(self) -> None:
        """Stop everything in the sandbox; returns once that is confirmed."""
        self._running_freezer().freeze()

    def thaw(self) -> None:
        """Let the sandbox go on."""
        self._running_freezer().thaw()

    def is_frozen(self) -> bool:
        """Whether everything that was stopped still is."""
        return self._running_freezer().is_frozen()

    def pids(self) -> frozenset[int]:
        """Return every process in the sandbox."""
        if self._process is None:
            return frozenset()
        holder = self._groups.get("freezer") or self._groups.get("pids")
        if holder is not None:
            return holder.pids()
        return procfs.descendants(self._process.pid)

    def carriers(self) -> frozenset[int]:
        """Return the processes that only hold the sandbox up, and sleep while the command runs."""
        if self._process is None or not self._uses_bwrap:
            return frozenset()
        return frozenset({self._process.pid, *procfs.children(self._process.pid)})

    def run_ns(self) -> dict[int, int]:
        """Return the CPU time of each process in the sandbox, by process id."""
        return procfs.run_ns(self.pids())

    def overuse(self) -> Incident | None:
        """Return the first limit that the sandbox ran into, if any."""
        plan = self._plan
        if self._over_memory():
            detail = f"used more than {plan.memory_mib} MiB of memory"
            return Incident("memory_exceeded", None, detail)
        if self._over_disk():
            detail = f"filled the {plan.tmp_mib} MiB of temporary space"
            return Incident("disk_exceeded", None, detail)
        if self._over_processes():
            detail = f"started more than {plan.processes} processes and threads"
            return Incident("process_limit", None, detail)
        return None

    def kill(self) -> None:
        """End everything in the sandbox, whatever state it is in; safe to repeat.

        Raises:
            BenchError: the kernel does not let go of it.
        """
        process, freezer = self._process, self._freezer
        if process is None or process.returncode is not None:
            return
        self._freezer = None
        with contextlib.ExitStack() as stack:
            pids = self._inner_pids(process, freezer)
            opened = [stack.enter_context(_watched(pid)) for pid in pids]
            inner = [handle for handle in opened if handle is not None]
            process.kill()
            for handle in inner:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            if freezer is not None:
                with contextlib.suppress(OSError):
                    freezer.thaw()
                freezer.close()
            _await_end(inner)
        try:
            process.wait(timeout=_REAP_S)
        except subprocess.TimeoutExpired as error:
            raise BenchError("a killed sandbox does not end") from error

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        output_limit_bytes: int = _TAIL_BYTES,
        cwd: PurePosixPath | None = None,
    ) -> Completed:
        """Run a command to its end, or to its deadline or limit; keep the tail of its output."""
        started = time.perf_counter()
        reader, writer = os.pipe()
        tail = Tail(reader, limit_bytes=output_limit_bytes)
        try:
            try:
                process = self.spawn(argv, stdout=writer, cwd=cwd)
            finally:
                os.close(writer)
            incident = self._follow(process, tail, started + timeout_s)
            rc = None if incident is not None else process.wait()
            self.kill()
            tail.drain_all()
        finally:
            tail.close()
        return Completed(
            rc=rc,
            output=tail.text,
            output_bytes=tail.total_bytes,
            seconds=time.perf_counter() - started,
            incidents=() if incident is None else (incident,),
        )

    def _follow(
        self, process: subprocess.Popen[bytes], tail: Tail, deadline: float
    ) -> Incident | None:
        while process.poll() is None:
            tail.wait(_POLL_S)
            over = self.overuse()
            if over is not None:
                return over
            if time.perf_counter() > deadline:
                return Incident("timed_out", None, "did not end in the time it was given")
        return self.overuse()

    @property
    def _uses_bwrap(self) -> bool:
        return self.kind.separation != "shared-account"

    def _running_freezer(self) -> Freezer:
        if self._freezer is None:
            raise BenchError("nothing runs in this sandbox")
        return self._freezer

    def _make_freezer(self, pid: int) -> Freezer:
        group = self._groups.get("freezer")
        return SignalFreezer(pid) if group is None else group_freezer(self.kind.freezer, group)

    def _limit_groups(self) -> None:
        memory, pids = self._groups.get("memory"), self._groups.get("pids")
        if memory is not None:
            file = "memory.max" if memory.has("memory.max") else "memory.limit_in_bytes"
            memory.write(file, str(self._plan.memory_mib * _MIB))
            if memory.has("memory.swap.max"):
                memory.write("memory.swap.max", "0")
        if pids is not None:
            pids.write("pids.max", str(self._plan.processes + _SPARE_PROCESSES))

    def _admit(self, pid: int) -> None:
        """Put a waiting process under every limit before it may start the candidate."""
        for group in set(self._groups.values()):
            group.write("cgroup.procs", str(pid))
        limits = {
            resource.RLIMIT_CORE: _NO_CORE_BYTES,
            resource.RLIMIT_FSIZE: self._plan.tmp_mib * _MIB,
        }
        if self._plan.bound:
            limits[resource.RLIMIT_NOFILE] = _BOUND_FILES
            limits[resource.RLIMIT_SIGPENDING] = _BOUND_SIGNALS
        if "pids" not in self._groups:
            uid = os.getuid() if self._uid is None else self._uid
            allowed = self._plan.processes + 2 * _SPARE_PROCESSES
            limits[resource.RLIMIT_NPROC] = procfs.tasks_of(uid) + allowed
        if "memory" not in self._groups:
            limits[resource.RLIMIT_DATA] = self._plan.memory_mib * _MIB
        for limit, value in limits.items():
            resource.prlimit(pid, limit, (value, value))

    def _details(self, cwd: PurePosixPath | None) -> list[bytes]:
        """Return the files that bubblewrap reads: its arguments, then the system-call filter."""
        if not self._uses_bwrap:
            return []
        arguments = [*NAMESPACES, *mount_arguments(self._plan)]
        arguments += ["--chdir", str(cwd or "/tmp")]  # noqa: S108 (a private tmpfs)
        program = seccomp.program(bound=self._plan.bound)
        files = ["\0".join(arguments).encode()]
        return files if program is None else [*files, program]

    def _wrapped(self, argv: Sequence[str], fds: Sequence[int]) -> list[str]:
        if not self._uses_bwrap:
            return list(argv)
        arguments, *filters = (str(fd) for fd in fds)
        identity = become_nobody() if self._uid is None else become_user(self._uid)
        guarded = [part for fd in filters for part in ("--seccomp", fd)]
        return ["bwrap", "--args", arguments, *guarded, *identity, *argv]

    def _environment(self) -> Mapping[str, str]:
        home = "/tmp" if self._uses_bwrap else tempfile.gettempdir()  # noqa: S108
        base = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": home,
            "TMPDIR": home,
            "USER": "candidate",
            "LANG": "C.UTF-8",
        }
        return base | dict(self._plan.env)

    def _inner_pids(
        self, process: subprocess.Popen[bytes], freezer: Freezer | None
    ) -> frozenset[int]:
        """Return what has to be killed by hand: the namespace's init, or else the whole tree."""
        if self._uses_bwrap:
            return frozenset(procfs.children(process.pid))
        if freezer is not None:
            freezer.freeze()
        return self.pids() - {process.pid}

    def _over_memory(self) -> bool:
        group = self._groups.get("memory")
        if group is None:
            allowed_mib = self._plan.memory_mib + self._plan.shared_mib
            return procfs.memory_bytes(self.pids()) > allowed_mib * _MIB
        files = ("memory.events", "memory.oom_control")
        return any(group.counter(file, "oom_kill") > 0 for file in files)

    def _over_disk(self) -> bool:
        limit = self._plan.tmp_mib * _MIB
        if any(disk_bytes(folder) > limit for folder in self._plan.writable):
            return True
        if self._process is None or not self._uses_bwrap:
            return False
        roots = procfs.children(self._process.pid)
        return any(is_full(pid, place, limit) for pid in roots for place in TEMPORARY)

    def _over_processes(self) -> bool:
        group = self._groups.get("pids")
        if group is not None:
            return group.counter("pids.events", "max") > 0
        tasks = sum(len(procfs.threads(pid)) for pid in self.pids())
        return tasks > self._plan.processes + _SPARE_PROCESSES


def _release(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.write(b"go\n")
        process.stdin.close()


@contextlib.contextmanager
def _open_files(contents: Sequence[bytes]) -> Generator[tuple[int, ...]]:
    """Yield one open file, read from its start, for each of `contents`."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in contents]
        for file, content in zip(files, contents, strict=True):
            file.write(content)
            file.flush()
            file.seek(0)
        yield tuple(file.fileno() for file in files)


@contextlib.contextmanager
def _watched(pid: int) -> Generator[int | None]:
    """Yield a handle that names this process for ever, None if it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _await_end(handles: Sequence[int]) -> None:
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(_REAP_S * 1000):
            raise BenchError("a killed process does not end")
