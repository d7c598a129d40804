"""Measures the server: spawn to tools/list against a bare MCPServer, memory, campaign_status.

Run: python tests/bench/bench_server.py [ROUNDS]; both servers are spawned in turn, in one run.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROUNDS = 15
CALLS = 200
RATIO_BAR = 1.6
RATIO_TARGET = 1.25
RSS_BAR_MB = 120
STATUS_BAR_MS = 15
BARE = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("bare")
@server.tool()
def double(number: int) -> int:
    "Double a number."
    return 2 * number
server.run("stdio")
"""
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "bench", "version": "1"},
}


class Server:
    """A server process, spoken to in plain JSON lines so that the client costs nothing."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.started_s = time.perf_counter()
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._ids = 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._ids += 1
        self._send({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params})
        while True:
            assert self.process.stdout is not None
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self._ids:
                return answer["result"]

    def greet(self) -> float:
        """Return the seconds from spawn to the answer of tools/list."""
        self.ask("initialize", HELLO)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.ask("tools/list", {})
        return time.perf_counter() - self.started_s

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


def started(argv: Sequence[str]) -> tuple[float, float]:
    server = Server(argv)
    seconds, rss = server.greet(), server.rss_mb()
    server.close()
    return seconds, rss


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        campaign = str(Path(folder) / "bench")
        command = [sys.executable, "-m", "inferproof.cli"]
        for more in (["init", "--template", "cpu-tiny"], ["seal", "--demo-key"]):
            done = [*command, *more, "--campaign", campaign]
            subprocess.run(done, check=True, capture_output=True)
        ours = [*command, "serve", "--campaign", campaign]
        bare = [sys.executable, "-c", BARE]
        pairs = [(started(bare), started(ours)) for _ in range(rounds)]
        ratio = statistics.median(b[0] / a[0] for a, b in pairs)
        bare_s, ours_s = (statistics.median(pair[n][0] for pair in pairs) for n in (0, 1))
        rss = max(b[1] for _, b in pairs)
        print(f"spawn to tools/list: bare {bare_s:.3f} s, ours {ours_s:.3f} s,", end=" ")
        print(f"ratio {ratio:.2f} (bar {RATIO_BAR}, target {RATIO_TARGET}); RSS {rss:.0f} MB")
        status_ms, busy_mb = status_times(ours)
    print(
        f"campaign_status: p50 {status_ms:.2f} ms (bar {STATUS_BAR_MS}); RSS then {busy_mb:.0f} MB"
    )
    if ratio > RATIO_BAR or max(rss, busy_mb) > RSS_BAR_MB or status_ms > STATUS_BAR_MS:
        sys.exit("a bar was missed")


def status_times(argv: Sequence[str]) -> tuple[float, float]:
    """Return the median milliseconds of campaign_status after the first call, and the RSS."""
    server = Server(argv)
    server.greet()
    times: list[float] = []
    for _ in range(CALLS):
        start = time.perf_counter()
        answer = server.ask("tools/call", {"name": "campaign_status", "arguments": {}})
        times.append(time.perf_counter() - start)
        if answer.get("isError"):
            sys.exit(f"campaign_status failed: {answer}")
    rss = server.rss_mb()
    server.close()
    return statistics.median(times[1:]) * 1e3, rss


if __name__ == "__main__":
    main()
