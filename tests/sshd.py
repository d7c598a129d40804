"""Real machines by SSH for tests: OpenSSH's own server on loopback addresses, as many as asked."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

SSHD = "/usr/sbin/sshd"
_CONFIG = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile {folder}/pid
UsePAM no
StrictModes no
PasswordAuthentication no
Subsystem sftp internal-sftp
LogLevel VERBOSE
MaxStartups 100
MaxSessions {sessions}
"""


class Sshd:
    """One server; its config, keys and log lie in `folder`."""

    def __init__(
        self, folder: Path, *, address: str = "127.0.0.2", sessions: int = 10, more: str = ""
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.address, self.port = folder, address, free_port(address)
        self.key = folder / "user_key"
        for path in (self.key, folder / "host_key"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
        public = self.key.with_suffix(".pub").read_text()
        (folder / "authorized_keys").write_text(public)
        config = _CONFIG.format(address=address, port=self.port, folder=folder, sessions=sessions)
        (folder / "sshd_config").write_text(config + more)
        Path("/run/sshd").mkdir(exist_ok=True)
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def fingerprint(self) -> str:
        said = _run("ssh-keygen", "-lf", str(self.folder / "host_key.pub"))
        return said.split()[1]

    def target(self, work: Path, **more: object) -> dict[str, object]:
        """Return the entry of targets.yaml for this machine."""
        return {
            "host": "ssh",
            "address": self.address,
            "port": self.port,
            "key": str(self.key),
            "host_key": self.fingerprint,
            "work": str(work),
            **more,
        }

    def start(self) -> None:
        log = self.folder / "log"
        config = str(self.folder / "sshd_config")
        self._server = subprocess.Popen([SSHD, "-D", "-f", config, "-E", str(log)])
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection((self.address, self.port), timeout=1).close()
            except OSError:
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
            else:
                return

    def new_host_key(self) -> None:
        """Become another machine at the same address, as far as anyone can see."""
        for name in ("host_key", "host_key.pub"):
            (self.folder / name).unlink()
        path = str(self.folder / "host_key")
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)

    def processes(self) -> list[int]:
        """Return the server and all that it forked for connections, oldest first."""
        assert self._server is not None
        found, waiting = [self._server.pid], [self._server.pid]
        while waiting:
            below = [pid for pid in _children(waiting.pop()) if _name(pid) == "sshd"]
            found += below
            waiting += below
        return found

    def send(self, number: signal.Signals) -> None:
        """Signal all of the server's processes, none of what runs in its sessions."""
        for pid in self.processes():
            os.kill(pid, number)

    def kill(self) -> None:
        """End the server and all connections as a crash would."""
        if self._server is not None:
            self.send(signal.SIGKILL)
            self._server.wait()
            self._server = None

    def __enter__(self) -> "Sshd":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def _run(*argv: str) -> str:
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20)
    return done.stdout


def _children(pid: int) -> Sequence[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, path.read_text().split())
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
