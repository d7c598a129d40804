"""An engine of few words: answers health and streams, and misbehaves when it is asked to."""

import contextlib
import http.server
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

SERVED = iter(range(1 << 30))
Said = tuple[int, str]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        act = ACTS.get(self.path)
        status, text = act() if act else (404, "no such page")
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection |= self.path == "/unsaid-end"

    def do_POST(self) -> None:
        pieces, pause_s = map(float, self.rfile.read(int(self.headers["Content-Length"])).split())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(int(pieces)):
            data = b"data: %d\n\n" % number
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
            time.sleep(pause_s)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


def leave() -> Said:
    print("I have had enough", flush=True)
    os._exit(3)


def end_by(number: signal.Signals) -> Said:
    os.kill(os.getpid(), number)
    threading.Event().wait()  # the signal may reach another thread first
    return 200, "still here"


def fill_disk() -> Said:
    with contextlib.suppress(OSError), Path("/tmp/much").open("wb") as file:
        while True:
            file.write(bytes(1 << 16))
    return 200, "full"


def swap_socket() -> Said:
    """Put a link to a socket of another process in the place of our own."""
    for path in Path("/").rglob("replica.sock"):
        path.unlink()
        path.symlink_to(sys.argv[2])
        return 200, str(path)
    return 404, "none found"


def call_sockets() -> Said:
    """Return each socket within sight, and whether anybody answers there."""
    found: list[str] = []
    for top, folders, names in os.walk("/"):
        if top == "/":
            folders[:] = [name for name in folders if name not in ("proc", "sys")]
        sockets = [path for path in (Path(top, name) for name in names) if path.is_socket()]
        found += [f"{path} {call(path)}" for path in sockets]
    return 200, "\n".join(found)


def call(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as caller:
        return "refused" if caller.connect_ex(str(path)) else "answered"


ACTS: dict[str, Callable[[], Said]] = {
    "/health": lambda: (200, "ok"),
    "/who": lambda: (200, f"{os.getpid()} {Path.cwd()}"),
    "/quarter": lambda: (500 if next(SERVED) % 4 == 0 else 200, "mine"),
    "/unsaid-end": lambda: (200, "the connection ends, which its answer does not say"),
    "/crash": lambda: end_by(signal.SIGSEGV),
    "/hang": lambda: end_by(signal.SIGSTOP),
    "/leave": leave,
    "/fill": fill_disk,
    "/swap": swap_socket,
    "/sockets": call_sockets,
}


if __name__ == "__main__":
    print("plain engine comes up", flush=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    threading.Thread(target=server.serve_forever).start()
