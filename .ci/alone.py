"""Run a command and fail if it leaves anything running: `alone.py COMMAND...`.

Orphans of the command become children of this process, so what is left can be told for certain.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 10.0
CGROUPS = Path("/sys/fs/cgroup")


def main(command: list[str]) -> int:
    """Return the command's exit status, or 1 when it left processes or control groups behind."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become the reaper of orphans")
    groups_before = _groups()
    rc = _run(command)
    left = _wait_for_orphans()
    for pid, what in left.items():
        print(f"left running: {pid} {what}", file=sys.stderr)
    _kill_all()
    groups_left = sorted(_groups() - groups_before)
    for group in groups_left:
        print(f"left behind: control group {group}", file=sys.stderr)
    return rc or (1 if left or groups_left else 0)


def _run(command: list[str]) -> int:
    """Return the command's exit status; meanwhile orphans that end are reaped, as by any init."""
    own = subprocess.Popen(command).pid
    while True:
        pid, status = os.wait()
        if pid == own:
            return os.waitstatus_to_exitcode(status)


def _wait_for_orphans() -> dict[int, str]:
    """Return the children that outlive the grace period, by process id."""
    ends_at = time.monotonic() + GRACE_S
    while time.monotonic() < ends_at:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return {}
        if pid == 0:
            time.sleep(0.1)
    return _children()


def _kill_all() -> None:
    """End all children; what they leave becomes our child in turn."""
    while children := _children():
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _children() -> dict[int, str]:
    listing = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {
        int(pid): Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        for pid in listing.split()
    }


def _groups() -> set[Path]:
    return {path for path in CGROUPS.glob("**/inferproof-*") if path.is_dir()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
