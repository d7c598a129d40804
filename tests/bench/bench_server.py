"""Measures the server: start against a bare MCPServer, memory, imports, two tools' whole calls.

Run: python tests/bench/bench_server.py [ROUNDS]; both servers are spawned in turn, in one run.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import Figures
from mcp import Client, StdioServerParameters

ROUNDS = 15
COMPILES = 11
CALLS = 200
RATIO_BAR = 1.6
RATIO_TARGET = 1.25
RSS_BAR_MB = 120
STATUS_BAR_MS = 15
COMPILE_BAR_MS = 50
WAIT_S = 45
HEAVY = ("torch", "aiperf", "transformers")
CANDIDATE = Path(__file__).parent / "kernels" / "matmul"
# The console command as it is, which leaves the names of all that it imported when it ends.
WATCHED = """
import atexit, json, os, pathlib, sys
from inferproof.cli import main
seen = pathlib.Path(os.environ["BENCH_MODULES"])
atexit.register(lambda: seen.write_text(json.dumps(sorted(sys.modules))))
sys.exit(main())
"""
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
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Path(folder) / "bench"
        command = [sys.executable, "-m", "inferproof.cli"]
        for more in (["init", "--template", "kernel"], ["seal", "--demo-key"]):
            done = [*command, *more, "--campaign", str(campaign)]
            subprocess.run(done, check=True, capture_output=True)
        serve = ["serve", "--campaign", str(campaign)]
        start_and_memory(figures, [*command, *serve], rounds)
        status_calls(figures, [*command, *serve])
        modules = Path(folder) / "modules.json"
        asyncio.run(second_compile(figures, serve, modules))
        imports(figures, modules)
    figures.finish()


def start_and_memory(figures: Figures, ours: Sequence[str], rounds: int) -> None:
    """Spawn a bare server and ours in turn."""
    bare = [sys.executable, "-c", BARE]
    pairs = [(started(bare), started(ours)) for _ in range(rounds)]
    bare_s, ours_s = (statistics.median(pair[n][0] for pair in pairs) for n in (0, 1))
    figures.at_most(
        "spawn to tools/list, against a bare MCPServer",
        statistics.median(b[0] / a[0] for a, b in pairs),
        RATIO_BAR,
        "x",
        f"target {RATIO_TARGET} x; bare {bare_s:.3f} s, ours {ours_s:.3f} s, {rounds} pairs",
    )
    figures.at_most("RSS after tools/list", max(b[1] for _, b in pairs), RSS_BAR_MB, "MiB")


def status_calls(figures: Figures, ours: Sequence[str]) -> None:
    """Ask for campaign_status again and again, after a first call that opens the keeper."""
    status_ms, rss = status_times(ours)
    figures.at_most("campaign_status, p50", status_ms, STATUS_BAR_MS, "ms", f"{CALLS} calls")
    figures.at_most("RSS after campaign_status", rss, RSS_BAR_MB, "MiB")


async def second_compile(figures: Figures, serve: Sequence[str], modules: Path) -> None:
    """Compile one candidate through a client's session until the cache has answered ten times."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-c", WATCHED, *serve],
        env={**os.environ, "BENCH_MODULES": str(modules)},
    )
    times: list[float] = []
    async with Client(parameters) as client:
        submitted = await told(client, "submit_candidate", {"folder": str(CANDIDATE)})
        arguments = {"candidate": submitted["candidate"], "wait_s": WAIT_S}
        for _ in range(COMPILES):
            start = time.perf_counter()
            result = await told(client, "compile_kernel", arguments)
            times.append((time.perf_counter() - start) * 1e3)
            if result["verdict"] != "pass":
                sys.exit(f"the candidate did not compile: {result['summary']}")
    figures.at_most(
        "second compile of the same source, whole tool call, p50",
        statistics.median(times[1:]),
        COMPILE_BAR_MS,
        "ms",
        f"calls 2 to {COMPILES}; the second {times[1]:.1f} ms, the first {times[0]:.0f} ms",
    )


def imports(figures: Figures, modules: Path) -> None:
    """Look for heavy modules among all that the server had imported when it ended."""
    found = {name.partition(".")[0] for name in json.loads(modules.read_text())}
    figures.holds(
        f"none of {', '.join(HEAVY)} in sys.modules of that server",
        not found & set(HEAVY),
        f"{len(found)} top-level modules",
    )


async def told(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's structured answer."""
    answer = await client.call_tool(tool, arguments)
    if answer.is_error or answer.structured_content is None:
        sys.exit(f"{tool} failed: {answer.content}")
    return answer.structured_content


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
