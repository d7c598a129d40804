"""Control groups of ours: to hold, stop, limit and empty a sandbox. Versions 1 and 2."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from inferproof_remote.incidents import BenchError

PREFIX = "inferproof-"
FreezerName = Literal["cgroup-v2", "cgroup-v1", "sigstop"]
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_EMPTY_S = 10.0
_STEP_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchies:
    """Where new groups may be made: a writable folder per controller, None where there is none."""

    unified: Path | None
    freezer: Path | None
    memory: Path | None
    pids: Path | None

    def folders(self) -> tuple[Path, ...]:
        """Return every folder that may hold groups of ours."""
        every = (self.unified, self.freezer, self.memory, self.pids)
        return tuple(folder for folder in every if folder is not None)


class Group:
    """One group in one hierarchy; made on construction, gone after `remove`."""

    def __init__(self, parent: Path, name: str) -> None:
        self.path = parent / f"{PREFIX}{name}"
        self.path.mkdir()

    def has(self, file: str) -> bool:
        """Whether the group has this control file."""
        return (self.path / file).exists()

    def read(self, file: str) -> str:
        """Return a control file's text, empty if there is none."""
        try:
            return (self.path / file).read_text(encoding="ascii")
        except OSError:
            return ""

    def write(self, file: str, value: str) -> None:
        """Set a control file."""
        (self.path / file).write_text(value, encoding="ascii")

    def counter(self, file: str, key: str) -> int:
        """Return the number beside `key` in a file of `key number` lines; 0 if absent."""
        for line in self.read(file).splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
        return 0

    def pids(self) -> frozenset[int]:
        """Return the processes in the group."""
        return frozenset(map(int, self.read("cgroup.procs").split()))


def find() -> Hierarchies:
    """Return where this process may make groups."""
    own = dict(_own_groups())
    roots: dict[str, Path] = {}
    for mount_root, mount_point, kind, options in _mounts():
        for controller in ("freezer", "memory", "pids"):
            if kind == "cgroup" and controller in options:
                roots[controller] = _writable(mount_point, mount_root, own.get(controller, "/"))
        if kind == "cgroup2":
            roots["unified"] = _writable(mount_point, mount_root, own.get("", "/"))
    usable = {name: path for name, path in roots.items() if os.access(path, os.W_OK)}
    return Hierarchies(
        unified=usable.get("unified"),
        freezer=usable.get("freezer"),
        memory=usable.get("memory"),
        pids=usable.get("pids"),
    )


def cleanup(name_prefix: str) -> tuple[str, ...]:
    """Thaw, kill and remove every group whose sandbox name starts so; return their names."""
    removed: set[str] = set()
    for folder in find().folders():
        for path in sorted(folder.iterdir()):
            if path.name.startswith(PREFIX + name_prefix) and path.is_dir():
                empty(path)
                removed.add(path.name.removeprefix(PREFIX))
    return tuple(sorted(removed))


def make(name: str, freezer: FreezerName) -> dict[str, Group]:
    """Return new groups by purpose: `freezer`, `memory` and `pids`, as far as they exist here.

    In version 2 one group serves every purpose whose controller it has.

    Raises:
        BenchError: the asked freezer is not to be had, or a group of that name exists.
    """
    if not _NAME.fullmatch(name):
        raise BenchError(f"{name!r} cannot name a control group")
    places = find()
    groups: dict[str, Group] = {}
    try:
        if freezer != "sigstop":
            folder = places.unified if freezer == "cgroup-v2" else places.freezer
            if folder is None:
                raise BenchError(f"no writable {freezer} freezer here")
            groups["freezer"] = Group(folder, name)
        for purpose, legacy in (("memory", places.memory), ("pids", places.pids)):
            if legacy is not None:
                groups[purpose] = Group(legacy, name)
            elif "freezer" in groups and groups["freezer"].has(f"{purpose}.max"):
                groups[purpose] = groups["freezer"]
    except OSError as error:
        remove(groups)
        raise BenchError(f"cannot make the control group {name}: {error}") from error
    return groups


def remove(groups: Mapping[str, Group]) -> None:
    """Kill whatever is in these groups, frozen or not, and delete them.

    The freezer goes first: what it holds frozen cannot die.
    """
    for path in dict.fromkeys(group.path for group in groups.values()):
        empty(path)


def empty(path: Path) -> None:
    """Kill everything in the group at `path` and delete it.

    Raises:
        BenchError: something in it cannot be killed.
    """
    deadline = time.monotonic() + _EMPTY_S
    while path.exists():
        _kill_all(path)
        with contextlib.suppress(OSError):
            path.rmdir()
            return
        if time.monotonic() > deadline:
            raise BenchError(f"{path}: still has processes after {_EMPTY_S:g} s of killing")
        time.sleep(_STEP_S)


def _kill_all(path: Path) -> None:
    """Kill what is in a group; frozen while it is read, so that no pid can be reused meanwhile."""
    if (path / "cgroup.kill").exists():
        _set(path / "cgroup.kill", "1")
    else:
        _set(path / "freezer.state", "FROZEN")
        for pid in _members(path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    _set(path / "cgroup.freeze", "0")
    _set(path / "freezer.state", "THAWED")


def _members(path: Path) -> tuple[int, ...]:
    try:
        return tuple(map(int, (path / "cgroup.procs").read_text(encoding="ascii").split()))
    except OSError:
        return ()


def _set(file: Path, value: str) -> None:
    if file.exists():
        with contextlib.suppress(OSError):
            file.write_text(value, encoding="ascii")


def _own_groups() -> Iterator[tuple[str, str]]:
    """Yield (controller, path of our group); the controller of version 2 is the empty string."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _mounts() -> Iterator[tuple[str, Path, str, frozenset[str]]]:
    """Yield (root, mount point, type, options) of each mounted hierarchy."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            fields = left.split()
            yield fields[3], Path(fields[4]), kind, frozenset(options.split(","))


def _writable(mount_point: Path, mount_root: str, own: str) -> Path:
    """Return our own group's folder if we may write there, else the top of the hierarchy."""
    relative = own.removeprefix(mount_root.rstrip("/")).lstrip("/")
    inner = mount_point / relative
    return inner if inner.is_dir() and os.access(inner, os.W_OK) else mount_point
