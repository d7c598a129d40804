"""Tries to get out of the sandbox in every way we know; prints the names of those that worked."""

import ctypes
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER = 0x10000000
TARGETS = json.loads(sys.argv[1])


def reads(path: str) -> Callable[[], object]:
    return lambda: Path(path).read_bytes()[:1] or refuse()


def lists(path: str) -> Callable[[], object]:
    return lambda: list(Path(path).iterdir()) or refuse()


def writes(path: str) -> Callable[[], object]:
    return lambda: Path(path).write_text("x")


def imports(name: str) -> Callable[[], object]:
    return lambda: importlib.import_module(name)


def calls(number: int, *arguments: int) -> Callable[[], object]:
    return lambda: refuse() if LIBC.syscall(number, *arguments) < 0 else None


def connects(family: int, address: tuple[str, int] | str) -> Callable[[], object]:
    def connect() -> None:
        with socket.socket(family) as client:
            client.settimeout(0.2)
            client.connect(address)

    return connect


def refuse() -> object:
    raise OSError("refused")


def kills_parent() -> None:
    os.kill(os.getppid(), signal.SIGKILL)


ATTEMPTS: dict[str, Callable[[], object]] = {
    **{f"read {path}": reads(path) for path in TARGETS["secrets"]},
    **{f"write {path}": writes(f"{path}/escaped") for path in TARGETS["read_only"]},
    "list home": lists("/home"),
    "list the campaign's folder": lists(TARGETS["campaign"]),
    "read /etc/shadow": reads("/etc/shadow"),
    "read /proc/1/mem": reads("/proc/1/mem"),
    "list control groups": lists("/sys/fs/cgroup"),
    "connect to a service of this machine": connects(
        socket.AF_INET, ("127.0.0.1", TARGETS["port"])
    ),
    "connect to an abstract socket": connects(socket.AF_UNIX, TARGETS["abstract"]),
    "look up a name": lambda: socket.getaddrinfo("localhost.example", 80),
    "import inferproof": imports("inferproof"),
    "import inferproof_remote": imports("inferproof_remote"),
    "become root": lambda: os.setuid(0),
    "renice upwards": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
    "real-time priority": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "ptrace": calls(101, 0, 0, 0, 0),
    "process_vm_readv": calls(310, os.getpid(), 0, 0, 0, 0, 0),
    "unshare": calls(272, NEW_USER),
    "clone into a new user namespace": calls(56, NEW_USER | signal.SIGCHLD, 0, 0, 0, 0),
    "perf_event_open": calls(298, 0, 0, 0, 0, 0),
    "io_uring_setup": calls(425, 8, 0),
    "add_key": calls(248, 0, 0, 0, 0, 0),
    "chroot": lambda: os.chroot("/tmp"),
}


def main() -> None:
    worked: list[str] = []
    for name, attempt in ATTEMPTS.items():
        try:
            attempt()
        except (OSError, ImportError):
            continue
        worked.append(name)
    print(json.dumps({"worked": worked, "environment": sorted(os.environ)}))


if __name__ == "__main__":
    main()
