"""What a sandboxed process sees of the disk, as arguments for bubblewrap."""

import functools
import itertools
import mmap
import os
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from inferproof_remote import cuda_nvml

_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives")
_TOPOLOGY = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_MIB = 1 << 20
TEMPORARY = ("/dev/shm", "/tmp")  # noqa: S108 (both are private to the sandbox)
LEASED = "INFERPROOF_GPUS"
_OURS = "*inferproof*"
_GPU_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """What a sandbox shows and allows.

    `read_only` and `writable` appear at their own paths; `placed` maps a path inside to a path
    outside, read-only. `masked` folders and files appear empty, and so do sockets that lie in
    `read_only`: whoever may not write to them can still call. Nothing else of the disk is there
    but the system's programs and libraries and this Python. `devices` are device files that may be
    used, as those of one accelerator. `processes` counts threads too;
    `shared_mib` is memory lent by the grader, which does not count. `bound` is for what is timed
    while the rest is frozen: it can neither leave timers behind, whose interrupts no freezer stops,
    nor choose its processors, nor open many files.
    """

    read_only: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    placed: Mapping[PurePosixPath, Path] = field(default_factory=dict[PurePosixPath, Path])
    masked: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()
    memory_mib: int
    shared_mib: int = 0
    tmp_mib: int
    processes: int
    bound: bool = False
    env: Mapping[str, str] = field(default_factory=dict[str, str])


def gpu_devices(*, default: Iterable[int] = ()) -> tuple[Path, ...]:
    """Return the device files of the GPUs that this job holds; without a lease, of `default`."""
    leased = os.environ.get(LEASED)
    if leased is None:
        minors = list(default)
    else:
        found = (cuda_nvml.minor(gpu) for gpu in leased.split(","))
        minors = [number for number in found if number is not None]
    names = [*_GPU_CONTROL, *(f"/dev/nvidia{number}" for number in minors)]
    return tuple(Path(name) for name in names if minors and Path(name).exists())


def first_gpu() -> str:
    """Return the name of the first GPU that this job holds; empty without a lease."""
    return os.environ.get(LEASED, "").partition(",")[0]


def leased_environment() -> Mapping[str, str]:
    """Return what a sandbox is told of the GPUs that this job holds; nothing without a lease."""
    leased = os.environ.get(LEASED)
    return {} if leased is None else {"CUDA_VISIBLE_DEVICES": leased}


def mount_arguments(plan: SandboxPlan) -> list[str]:
    """Return the bubblewrap arguments that build the sandbox's file system."""
    arguments = ["--proc", "/proc", "--dev", "/dev"]
    for place in TEMPORARY:
        arguments += ["--perms", "1777", *_sized(plan.tmp_mib * _MIB), "--tmpfs", place]
    for device in plan.devices:
        arguments += ["--dev-bind", str(device), str(device)]
    arguments += ["--remount-ro", "/dev"]
    arguments += _system_arguments()
    made = {PurePosixPath(top) for top in ("/", "/proc", "/dev", "/usr", "/etc", "/sys")}
    for option, outside, inside in _binds(plan):
        arguments += _parents(inside, made)
        arguments += [option, str(outside), str(inside)]
        made.add(PurePosixPath(inside))
    for path in (*_installed_copies(), *_sockets(plan.read_only), *plan.masked):
        arguments += _mask(path)
    return [*arguments, "--remount-ro", "/"]


def _system_arguments() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            arguments += ["--ro-bind", name, name]
    for folder in ("/etc", "/sys", "/sys/devices", "/sys/devices/system"):
        arguments += ["--perms", "0755", "--dir", folder]
    for name in (*_SYSTEM_FILES, *_TOPOLOGY):
        arguments += ["--ro-bind-try", name, name]
    return arguments


def _binds(plan: SandboxPlan) -> Iterator[tuple[str, Path, PurePosixPath]]:
    """Yield (option, path outside, path inside), outermost folders first."""
    read_only = [*_python_folders(), *plan.read_only]
    binds = [("--ro-bind", path.resolve(), PurePosixPath(path)) for path in read_only]
    binds += [("--ro-bind", path.resolve(), inside) for inside, path in plan.placed.items()]
    binds += [("--bind", path.resolve(), PurePosixPath(path)) for path in plan.writable]
    yield from sorted(set(binds), key=lambda bind: len(bind[2].parts))


def _python_folders() -> list[Path]:
    """Return the folders this Python runs from, unless the system's own already hold them."""
    prefixes = {sys.prefix, sys.base_prefix, str(Path(sys.base_prefix).resolve())}
    return [Path(prefix) for prefix in sorted(prefixes) if not prefix.startswith("/usr")]


def _parents(inside: PurePosixPath, made: set[PurePosixPath]) -> list[str]:
    """Return arguments that make the missing parents readable; bubblewrap alone makes them 0700."""
    arguments: list[str] = []
    for parent in reversed(inside.parents):
        if parent not in made:
            arguments += ["--perms", "0755", "--dir", str(parent)]
        made.add(parent)
    return arguments


def _installed_copies() -> Iterable[Path]:
    """Yield installed files and folders of this project, which no candidate needs to read."""
    names = ("purelib", "platlib")
    folders = {sysconfig.get_path(name) for name in names} | set(site.getsitepackages())
    for folder in sorted(folders):
        yield from sorted(Path(folder).glob(_OURS))


def _sockets(folders: Iterable[Path]) -> Iterable[Path]:
    for top, _, names in itertools.chain.from_iterable(map(os.walk, folders)):
        for path in (Path(top, name) for name in names):
            if path.is_socket() and not path.is_symlink():
                yield path


def _mask(path: Path) -> list[str]:
    name = os.fspath(path)
    if path.is_dir():
        return [*_sized(mmap.PAGESIZE), "--tmpfs", name, "--remount-ro", name]
    return ["--ro-bind", "/dev/null", name]


@functools.cache
def _knows_size() -> bool:
    """Whether this bubblewrap can limit a tmpfs; before version 0.7 only the watchdog does."""
    told = subprocess.run(["bwrap", "--help"], capture_output=True, check=False)
    return b"--size" in told.stdout + told.stderr


def _sized(size_bytes: int) -> list[str]:
    return ["--size", str(size_bytes)] if _knows_size() else []
