"""An engine that streams, says which replica it is, and tries at request what a sandbox forbids."""

import ctypes
import http.server
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

VERSION = "one"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(json.dumps(ACTS[self.path]()) if self.path in ACTS else "{}")

    def do_POST(self) -> None:
        pieces, pause_s = map(float, self.rfile.read(int(self.headers["Content-Length"])).split())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("X-Replica", socket.gethostname())
        self.send_header("X-Version", VERSION)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(int(pieces)):
            data = b"data: %d\n\n" % number
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
            time.sleep(pause_s)
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        print("served", self.path, flush=True)


def refusal(act: Callable[[], object]) -> str:
    try:
        act()
    except OSError as error:
        return os.strerror(error.errno or 0)
    return "allowed"


def network() -> object:
    addresses = [("10.0.0.1", 80), ("172.17.0.1", 22), ("1.1.1.1", 53)]
    return {
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "reached": [refusal(lambda at=at: socket.create_connection(at, 1)) for at in addresses],
    }


def write() -> object:
    places = ["/x", "/candidate/x", "/usr/bin/x", "/etc/x", "/run/replica/x", "/sys/x", "/proc/x"]
    return {place: refusal(lambda at=place: Path(at).write_text("x")) for place in places}


def fork() -> object:
    """Fork until nothing more goes; return how many there were."""
    children: list[int] = []
    reason = "allowed"
    for _ in range(2000):
        try:
            child = os.fork()
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            break
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children.append(child)
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return {"forks": len(children), "reason": reason}


def setuid() -> object:
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    return {
        "uid": os.getuid(),
        "setuid": refusal(lambda: os.setuid(0)),
        "capabilities": status["CapEff"].strip(),
        "bounding": status["CapBnd"].strip(),
        "no_new_privileges": status["NoNewPrivs"].strip(),
    }


def proc() -> object:
    """Return whose processes are seen, and what of them and of the kernel can be read."""
    pids = [path.name for path in Path("/proc").iterdir() if path.name.isdecimal()]
    words = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode() for pid in pids]
    return {
        "commands": sorted({Path(word).name for word in words if word}),
        "memory": refusal(lambda: Path("/proc/kcore").open("rb").read(1)),
        "keys": refusal(lambda: Path("/proc/sysrq-trigger").write_text("x")),
        "mount": "refused" if ctypes.CDLL(None).mount(b"x", b"/tmp", b"tmpfs", 0, None) else "done",
        "sockets": [str(path) for path in Path("/run").rglob("*") if path.is_socket()],
        "core_bytes": resource.getrlimit(resource.RLIMIT_CORE)[1],
    }


def memory() -> object:
    kept = [bytearray(os.urandom(1 << 20)) for _ in range(4096)]
    return {"allowed_mib": len(kept)}


def swap() -> object:
    """Put a link in the place of our own socket."""
    place = Path("/run/replica/replica.sock")
    return {"swap": refusal(lambda: (place.unlink(), place.symlink_to("/etc/passwd")))}


ACTS = {"/" + act.__name__: act for act in (network, write, fork, setuid, proc, memory, swap)}

if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
