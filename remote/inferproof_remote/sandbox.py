"""A place where hostile code runs and from which nothing leaks: files, processes, memory, time."""

import contextlib
import functools
import os
import resource
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Literal, Self

from inferproof_remote import cgroups, procfs, seccomp
from inferproof_remote.cgroups import Group
from inferproof_remote.freezers import (
    Freezer,
    FreezerName,
    LegacyFreezer,
    SignalFreezer,
    UnifiedFreezer,
)
from inferproof_remote.incidents import BenchError, Incident
from inferproof_remote.mounts import SandboxPlan, mount_arguments

Separation = Literal["separate-user", "container", "shared-account"]

_MIB = 1 << 20
_HIGHEST_UID = 2_000_000_000
_UID_SPAN = 100_000_000
_SPARE_PROCESSES = 4
_TAIL_BYTES = 64 * 1024
_POLL_S = 0.02
_WAIT_FOR_GO = 'read -r _ && exec "$@" </dev/null'


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchKind:
    """How well this machine keeps a candidate apart, in the words of the evidence."""

    separation: Separation
    sandbox: str
    freezer: FreezerName


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a command in the sandbox ended. `rc` is None if it had to be killed."""

    rc: int | None
    output: bytes
    output_bytes: int
    seconds: float
    incidents: tuple[Incident, ...]


@functools.cache
def describe() -> BenchKind:
    """Return what this machine offers, tried out once."""
    separation, sandbox = _separation()
    return BenchKind(separation=separation, sandbox=sandbox, freezer=_best_freezer())


class Sandbox:
    """One sandbox; everything in it is gone when the `with` block ends."""

    def __init__(self, plan: SandboxPlan, *, name: str, kind: BenchKind | None = None) -> None:
        self.kind = kind or describe()
        self._plan = plan
        self._name = name
        self._groups: dict[str, Group] = {}
        self._freezer: Freezer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._uid = _unused_uid() if self.kind.separation == "separate-user" else os.getuid()
        self._owners = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._groups = _make_groups(self._name, self.kind.freezer)
        self._limit_groups()
        if self.kind.separation == "separate-user":
            for folder in self._plan.writable:
                self._owners.enter_context(_lent_to(folder, self._uid))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        for group in set(self._groups.values()):
            group.remove()
        self._owners.close()

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
        with _filter_file() as filter_fd:
            command = self._command(argv, filter_fd=filter_fd, cwd=cwd)
            fds = (*pass_fds, *(() if filter_fd is None else (filter_fd,)))
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT_FOR_GO, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stdout,
                pass_fds=fds,
                cwd="/" if self._uses_bwrap else (cwd or "/"),
                env=self._environment(),
                start_new_session=True,
            )
            self._process = process
            self._admit(process.pid)
            if process.stdin is not None:
                process.stdin.write(b"go\n")
                process.stdin.close()
        self._freezer = self._make_freezer(process.pid)
        return process

    def freeze(self) -> None:
        """Stop everything in the sandbox; returns once that is confirmed."""
        self._require_freezer().freeze()

    def thaw(self) -> None:
        """Let the sandbox go on."""
        self._require_freezer().thaw()

    def pids(self) -> frozenset[int]:
        """Return every process in the sandbox."""
        if self._process is None:
            return frozenset()
        holder = self._groups.get("freezer") or self._groups.get("pids")
        if holder is not None:
            return holder.pids()
        return procfs.descendants(self._process.pid)

    def run_ns(self) -> dict[int, int]:
        """Return the CPU time of each thread in the sandbox, by thread id."""
        return procfs.run_ns(self.pids())

    def overuse(self) -> Incident | None:
        """Return the first limit that the sandbox ran into, if any."""
        if self._over_memory():
            detail = f"used more than {self._plan.memory_mib} MiB of memory"
            return Incident("memory_exceeded", None, detail)
        if self._over_disk():
            detail = f"filled the {self._plan.tmp_mib} MiB of temporary space"
            return Incident("disk_exceeded", None, detail)
        if self._over_processes():
            detail = f"started more than {self._plan.processes} processes and threads"
            return Incident("process_limit", None, detail)
        return None

    def kill(self) -> None:
        """End everything in the sandbox, whatever state it is in."""
        process = self._process
        if process is None:
            return
        for pid in self.pids() | procfs.descendants(process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if self._freezer is not None:
            with contextlib.suppress(OSError):
                self._freezer.thaw()
            self._freezer.close()
            self._freezer = None
        process.kill()
        process.wait()

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
            process = self.spawn(argv, stdout=writer, cwd=cwd)
        finally:
            os.close(writer)
        incident = self._follow(process, tail, started + timeout_s)
        rc = None if incident is not None else process.wait()
        self.kill()
        tail.drain()
        tail.close()
        return Completed(
            rc=rc,
            output=tail.text,
            output_bytes=tail.total_bytes,
            seconds=time.perf_counter() - started,
            incidents=() if incident is None else (incident,),
        )

    def _follow(
        self, process: subprocess.Popen[bytes], tail: "Tail", deadline: float
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

    def _require_freezer(self) -> Freezer:
        if self._freezer is None:
            raise BenchError("nothing runs in this sandbox")
        return self._freezer

    def _make_freezer(self, pid: int) -> Freezer:
        group = self._groups.get("freezer")
        if group is None:
            return SignalFreezer(pid)
        return UnifiedFreezer(group) if self.kind.freezer == "cgroup-v2" else LegacyFreezer(group)

    def _limit_groups(self) -> None:
        memory, pids = self._groups.get("memory"), self._groups.get("pids")
        if memory is not None:
            modern = memory.has("memory.max")
            file = "memory.max" if modern else "memory.limit_in_bytes"
            memory.write(file, str(self._plan.memory_mib * _MIB))
            if memory.has("memory.swap.max"):
                memory.write("memory.swap.max", "0")
        if pids is not None:
            pids.write("pids.max", str(self._plan.processes + _SPARE_PROCESSES))

    def _admit(self, pid: int) -> None:
        """Put a waiting process under every limit before it may start the candidate."""
        for group in set(self._groups.values()):
            group.write("cgroup.procs", str(pid))
        size = self._plan.tmp_mib * _MIB
        limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, size)]
        if self.kind.separation == "separate-user":
            limits.append((resource.RLIMIT_NPROC, self._plan.processes))
        if "memory" not in self._groups:
            limits.append((resource.RLIMIT_DATA, self._plan.memory_mib * _MIB))
        for limit, value in limits:
            resource.prlimit(pid, limit, (value, value))

    def _command(
        self, argv: Sequence[str], *, filter_fd: int | None, cwd: PurePosixPath | None
    ) -> list[str]:
        if not self._uses_bwrap:
            return list(argv)
        command = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session"]
        command += ["--hostname", "bench", *mount_arguments(self._plan)]
        command += ["--chdir", str(cwd or "/tmp")]  # noqa: S108 (a private tmpfs)
        if filter_fd is not None:
            command += ["--seccomp", str(filter_fd)]
        if self.kind.separation == "container":
            own = ["--unshare-user", "--uid", "65534", "--gid", "65534"]
            return [*command, *own, "--cap-drop", "ALL", "--", *argv]
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        command += ["--cap-add", "CAP_SETPCAP"]
        user = str(self._uid)
        become = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"]
        return [*command, "--", *become, "--inh-caps=-all", "--bounding-set=-all", *argv]

    def _environment(self) -> Mapping[str, str]:
        home = "/tmp" if self._uses_bwrap else tempfile.gettempdir()  # noqa: S108
        base = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": home,
            "USER": "candidate",
            "LANG": "C.UTF-8",
            "TMPDIR": home,
        }
        return base | dict(self._plan.env)

    def _over_memory(self) -> bool:
        group = self._groups.get("memory")
        if group is None:
            allowed = (self._plan.memory_mib + self._plan.shared_mib) * _MIB
            return procfs.memory_bytes(self.pids()) > allowed
        return (
            group.counter("memory.events", "oom_kill")
            + (group.counter("memory.oom_control", "oom_kill"))
            > 0
        )

    def _over_disk(self) -> bool:
        if self._process is None or not self._uses_bwrap:
            return False
        limit = self._plan.tmp_mib * _MIB
        if any(_disk_bytes(folder) > limit for folder in self._plan.writable):
            return True
        for inner in procfs.children(self._process.pid):
            for place in ("tmp", "dev/shm"):
                with contextlib.suppress(OSError):
                    if os.statvfs(f"/proc/{inner}/root/{place}").f_bavail == 0:
                        return True
        return False

    def _over_processes(self) -> bool:
        group = self._groups.get("pids")
        if group is not None:
            return group.counter("pids.events", "max") > 0
        tasks = sum(len(procfs.threads(pid)) for pid in self.pids())
        return tasks > self._plan.processes + _SPARE_PROCESSES


class Tail:
    """The end of what is written to a pipe; the rest is read and dropped."""

    def __init__(self, fd: int, *, limit_bytes: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.text = b""
        self.total_bytes = 0
        self._limit_bytes = limit_bytes

    def wait(self, seconds: float) -> None:
        """Read what comes within `seconds`, then return."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        if any(event & select.POLLIN for _, event in poll.poll(seconds * 1000)):
            self.drain()
        else:
            time.sleep(seconds if _closed(poll) else 0)

    def drain(self) -> None:
        """Read all there is now."""
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.fd, 1 << 16):
                self.total_bytes += len(chunk)
                self.text = (self.text + chunk)[-self._limit_bytes :]

    def close(self) -> None:
        """Let go of the pipe."""
        os.close(self.fd)


def _closed(poll: select.poll) -> bool:
    return bool(poll.poll(0))


def _separation() -> tuple[Separation, str]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "shared-account", "rlimits only: bubblewrap is not installed"
    version = subprocess.run([bwrap, "--version"], capture_output=True, check=False, text=True)
    name = version.stdout.strip() or "bubblewrap"
    if os.getuid() == 0 and shutil.which("setpriv") and _unused_uid() > 0 and _works(()):
        return "separate-user", name
    if _works(("--unshare-user",)):
        return "container", name
    return "shared-account", f"rlimits only: {name} cannot make namespaces here"


def _works(extra: Sequence[str]) -> bool:
    command = ["bwrap", *extra, "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/"]
    command += ["--proc", "/proc", "--", "/bin/true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _unused_uid() -> int:
    """Return a high user id that is most likely nobody's; 0 if this machine maps too few."""
    ranges = [
        (int(first), int(count))
        for first, _, count in map(
            str.split, Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
        )
    ]
    end = max((first + count for first, count in ranges), default=0)
    if end <= 1 << 16:
        return end - 1 if end > 1 else 0
    span = min(_UID_SPAN, end - (1 << 16))
    return min(_HIGHEST_UID, end - span) + secrets.randbelow(span)


def _best_freezer() -> FreezerName:
    for name in ("cgroup-v2", "cgroup-v1"):
        if _freezes(name):
            return name
    return "sigstop"


def _freezes(name: FreezerName) -> bool:
    """Whether a process can really be stopped this way here."""
    try:
        groups = _make_groups(f"probe-{os.getpid()}-{secrets.token_hex(4)}", name)
    except (OSError, BenchError):
        return False
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        group = groups["freezer"]
        group.write("cgroup.procs", str(child.pid))
        freezer = UnifiedFreezer(group) if name == "cgroup-v2" else LegacyFreezer(group)
        freezer.freeze()
        freezer.thaw()
        freezer.close()
    except (OSError, BenchError):
        return False
    else:
        return True
    finally:
        child.kill()
        child.communicate()
        for group in set(groups.values()):
            group.remove()


def _make_groups(name: str, freezer: FreezerName) -> dict[str, Group]:
    """Make one group per hierarchy that is used; the unified one may serve several purposes."""
    places = cgroups.find()
    groups: dict[str, Group] = {}
    if freezer == "cgroup-v2":
        if places.unified is None:
            raise BenchError("no writable cgroup2 hierarchy here")
        groups["freezer"] = Group(places.unified, name)
    elif freezer == "cgroup-v1":
        if places.freezer is None:
            raise BenchError("no writable freezer hierarchy here")
        groups["freezer"] = Group(places.freezer, name)
    for purpose, folder, file in (
        ("memory", places.memory, "memory.max"),
        ("pids", places.pids, "pids.max"),
    ):
        if folder is not None:
            groups[purpose] = Group(folder, name)
        elif freezer == "cgroup-v2" and groups["freezer"].has(file):
            groups[purpose] = groups["freezer"]
    return groups


@contextlib.contextmanager
def _filter_file() -> Iterator[int | None]:
    """Yield an open file with the system-call filter, if this architecture has one."""
    program = seccomp.program()
    if program is None:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        file.write(program)
        file.flush()
        file.seek(0)
        yield file.fileno()


@contextlib.contextmanager
def _lent_to(folder: Path, uid: int) -> Iterator[None]:
    """Give a folder and its content to `uid` while the sandbox lives, then take it back."""
    owner = folder.stat().st_uid
    _own(folder, uid)
    try:
        yield
    finally:
        _own(folder, owner)


def _own(folder: Path, uid: int) -> None:
    os.lchown(folder, uid, uid)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(Path(parent) / name, uid, uid)


def _disk_bytes(folder: Path) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += (Path(parent) / name).lstat().st_blocks * 512
    return total
