"""Processes that hold the accelerator, as the grader sees them: ask, and never wait for ever."""

import os
import pkgutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from inferproof_remote import job
from inferproof_remote.gpu_wire import SharedBytes, Wire, WireClosed, WireSilent
from inferproof_remote.incidents import BenchError
from inferproof_remote.line import Ended
from inferproof_remote.mounts import SandboxPlan, gpu_devices
from inferproof_remote.sandbox import Sandbox, describe
from inferproof_remote.tail import Tail

_MODULES = (
    *(
        "__init__",
        "cuda_driver",
        "cuda_kernels",
        "cuda_launch",
        "expressions",
        "gpu_chain",
        "gpu_launcher",
    ),
    *("gpu_memory", "gpu_serve", "gpu_wire", "job", "kernel", "launches", "tail", "tensor_maps"),
)
_INSIDE = PurePosixPath("/bench")
_RUN = (
    "import sys; sys.path.insert(0, {folder!r});"
    " from inferproof_remote.{module} import main; main({arguments})"
)
_START_S = 120.0
_LAUNCHER_MEMORY_MIB, _LAUNCHER_TMP_MIB, _LAUNCHER_PROCESSES = 1 << 16, 256, 256
_LOG_BYTES = 16 * 1024
_HANDED_ON = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")

Spawn = Callable[[Sequence[str], int, tuple[int, ...]], subprocess.Popen[bytes]]


class DeviceProcess:
    """One process with a context of its own; `shared` holds the tensors of a request."""

    def __init__(self, module: str, *, shared_bytes: int) -> None:
        self._module = module
        self.shared = SharedBytes.make(shared_bytes)
        self._stack = ExitStack()
        self._is_ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def start_apart(self, name: str) -> None:
        """Start it in a sandbox that sees our own code, the driver and the device."""
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        stage(folder)
        plan = device_plan(folder)
        sandbox = self._stack.enter_context(Sandbox(plan, name=job.sandbox_name(name)))

        def spawn(argv: Sequence[str], log: int, fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
            return sandbox.spawn(argv, stdout=log, pass_fds=fds)

        self._start(spawn, place_of(folder), ["-I", "-B"])

    def start_trusted(self, *arguments: str, env: Mapping[str, str]) -> None:
        """Start it as an ordinary process: it runs the contract's own code."""
        whole = {**os.environ, **env}

        def spawn(argv: Sequence[str], log: int, fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=fds, env=whole
            )
            self._stack.callback(_end, process)
            return process

        place = str(Path(__file__).resolve().parents[1])
        self._start(spawn, place, ["-B"], *arguments)

    def _start(self, spawn: Spawn, place: str, flags: Sequence[str], *extra: str) -> None:
        ours, theirs = socket.socketpair()
        log, log_in = os.pipe()
        fds = (theirs.fileno(), self.shared.fd)
        numbers = [*map(str, fds), str(self.shared.size_bytes), *map(repr, extra)]
        code = _RUN.format(folder=place, module=self._module, arguments=", ".join(numbers))
        try:
            self._process = spawn([sys.executable, *flags, "-c", code], log_in, fds)
        finally:
            os.close(log_in)
            theirs.close()
        self._log = Tail(log, limit_bytes=_LOG_BYTES)
        self._stack.callback(self._log.close)
        self._wire = Wire(ours, self._log)
        self._stack.callback(self._wire.close)

    def ask(self, request: Mapping[str, object], timeout_s: float) -> Mapping[str, object]:
        """Return the answer to a request.

        Raises:
            Ended: the device code crashed it, hangs, or cannot be launched as asked.
        """
        self.post(request)
        return self.collect(timeout_s)

    def post(self, request: Mapping[str, object]) -> None:
        """Send a request whose answer is collected later, in the order of the requests."""
        try:
            self._wire.send(request)
        except WireClosed as error:
            raise Ended("crashed", f"the launcher is gone: {error}") from error

    def collect(self, timeout_s: float) -> Mapping[str, object]:
        """Return the answer to the oldest request that has none yet. Raises as `ask`."""
        if not self._is_ready:
            self._receive(_START_S, "did not start")
            self._is_ready = True
        return self._receive(timeout_s, "did not finish in the time it was given")

    def log(self) -> str:
        """Return the end of what it printed."""
        self._log.drain_all()
        return self._log.text.decode(errors="replace")

    def _receive(self, timeout_s: float, late: str) -> Mapping[str, object]:
        try:
            answer = self._wire.receive(timeout_s)
        except WireSilent as error:
            raise Ended("timed_out", late) from error
        except WireClosed as error:
            said = self.log().strip().splitlines()[-1:] or [str(error)]
            raise Ended("crashed", f"the launcher ended: {said[0][:300]}") from error
        if "refused" in answer:
            raise Ended("crashed", f"cannot be launched: {answer['refused']}")
        if "failed" in answer:
            raise Ended("crashed", f"the device says {answer['failed']}")
        return answer


def device_plan(folder: Path) -> SandboxPlan:
    """Return a sandbox that sees `folder`, the driver and the device."""
    return SandboxPlan(
        placed={} if describe().separation == "shared-account" else {_INSIDE: folder},
        devices=gpu_devices(default=(0,)),
        memory_mib=_LAUNCHER_MEMORY_MIB,
        tmp_mib=_LAUNCHER_TMP_MIB,
        processes=_LAUNCHER_PROCESSES,
        env={name: os.environ[name] for name in _HANDED_ON if name in os.environ},
    )


def place_of(folder: Path) -> str:
    """Return where that sandbox sees `folder`."""
    return str(folder if describe().separation == "shared-account" else _INSIDE)


def stage(folder: Path, *more: str) -> None:
    """Lay our own code out for the sandbox, readable by whatever user runs it."""
    package = folder / "inferproof_remote"
    package.mkdir()
    for name in (*_MODULES, *more):
        data = pkgutil.get_data("inferproof_remote", f"{name}.py")
        if data is None:
            raise BenchError(f"this bench lacks its own module {name}")
        (package / f"{name}.py").write_bytes(data)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
