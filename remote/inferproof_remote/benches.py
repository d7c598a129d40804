"""What this machine offers to keep a candidate apart, tried out rather than assumed."""

import functools
import os
import secrets
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from inferproof_remote import cgroups, seccomp
from inferproof_remote.freezers import FreezerName, GroupFreezer, group_freezer
from inferproof_remote.incidents import BenchError
from inferproof_remote.job import sandbox_name
from inferproof_remote.mounts import SandboxPlan, mount_arguments

Separation = Literal["separate-user", "container", "shared-account"]

NAMESPACES = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "bench", "--die-with-parent", "--new-session"),
)
_HIGHEST_UID = 2_000_000_000
_UID_SPAN = 100_000_000
_COMMON_UIDS = 1 << 16
_NOBODY = "65534"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchKind:
    """How well this machine keeps a candidate apart, in the words of the evidence."""

    separation: Separation
    sandbox: str
    freezer: FreezerName


@functools.cache
def describe() -> BenchKind:
    """Return what this machine offers, tried out once."""
    separation, sandbox = _separation()
    return BenchKind(separation=separation, sandbox=sandbox, freezer=freezers()[0])


def freezers() -> tuple[FreezerName, ...]:
    """Return every way to stop a sandbox that works here, the fastest first."""
    groups: tuple[FreezerName, ...] = ("cgroup-v2", "cgroup-v1")
    return (*(name for name in groups if _freezes(name)), "sigstop")


def unused_uid() -> int | None:
    """Return a high user id that is most likely nobody's, if this machine maps one."""
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    ends = [int(first) + int(count) for first, _, count in map(str.split, lines)]
    end = max(ends, default=0)
    if end <= _COMMON_UIDS:
        return end - 2 if end > _COMMON_UIDS // 2 else None
    span = min(_UID_SPAN, end - _COMMON_UIDS)
    return min(_HIGHEST_UID, end - span) + secrets.randbelow(span)


def become_user(uid: int) -> list[str]:
    """Return bubblewrap's last arguments and the command that drops root for good."""
    kept = [
        part for name in ("SETUID", "SETGID", "SETPCAP") for part in ("--cap-add", f"CAP_{name}")
    ]
    user = str(uid)
    drop = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"]
    return ["--cap-drop", "ALL", *kept, "--", *drop, "--inh-caps=-all", "--bounding-set=-all"]


def become_nobody() -> list[str]:
    """Return bubblewrap's last arguments for a user without privileges."""
    return ["--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY, "--cap-drop", "ALL", "--"]


def _separation() -> tuple[Separation, str]:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "shared-account", "rlimits only: bubblewrap is not installed"
    version = subprocess.run([bwrap, "--version"], capture_output=True, check=False, text=True)
    filtered = "with" if seccomp.program() else "without"
    name = f"{version.stdout.strip() or 'bubblewrap'} {filtered} a system-call filter"
    uid = unused_uid()
    if os.getuid() == 0 and uid is not None and _works(become_user(uid)):
        return "separate-user", name
    if _works(become_nobody()):
        return "container", name
    return "shared-account", f"rlimits only: {name} cannot make a sandbox here"


def _works(identity: Sequence[str]) -> bool:
    mounts = mount_arguments(SandboxPlan(memory_mib=64, tmp_mib=1, processes=8))
    command = ["bwrap", *NAMESPACES, *mounts, *identity, "/bin/true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _freezes(name: FreezerName) -> bool:
    """Whether a process can really be stopped this way here."""
    try:
        groups = cgroups.make(sandbox_name(f"probe-{secrets.token_hex(4)}"), name)
    except BenchError:
        return False
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        group = groups["freezer"]
        group.write("cgroup.procs", str(child.pid))
        _stop_and_go(group_freezer(name, group))
    except (OSError, BenchError):
        return False
    else:
        return True
    finally:
        child.kill()
        child.communicate()
        cgroups.remove(groups)


def _stop_and_go(freezer: GroupFreezer) -> None:
    try:
        freezer.freeze()
        freezer.thaw()
    finally:
        freezer.close()
