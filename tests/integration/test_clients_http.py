"""Clients that are not ours reach the server over HTTP: MCP Inspector, and MCP's own conformance.

The conformance suite cannot send a token, so a relay of the test's puts it into each request.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from inferproof.cli import main
from small_campaign import small_campaign

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
PROGRAMS = Path(__file__).parents[2] / ".cache" / "clients" / "node_modules" / ".bin"
PATH = os.pathsep.join((str(PROGRAMS), os.environ.get("PATH", "")))
SCENARIOS = (
    *("server-initialize", "ping", "tools-list", "resources-list", "prompts-list"),
    *("server-sse-multiple-streams", "dns-rebinding-protection"),
)


def ran(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which(name, path=PATH)
    if program is None:
        pytest.skip(f"{name} is not installed: make clients")
    return subprocess.run(
        [program, *arguments],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": PATH},
        timeout=200,
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Yield the address of a server of a small campaign, and its token."""
    folder = small_campaign(tmp_path_factory.mktemp("http") / "small")
    assert main(["seal", "--demo-key", "--campaign", str(folder)]) == 0
    argv = [sys.executable, "-m", "inferproof.cli", "serve", "--http", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*argv, "--campaign", str(folder)], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[1].rstrip(";")
        yield url, (folder / ".inferproof" / "http-token").read_text(encoding="ascii").strip()
        process.send_signal(signal.SIGTERM)


class Relay:
    """Passes HTTP/1.1 on as it comes, with one more header in each request."""

    def __init__(self, port: int, header: bytes) -> None:
        self._port, self._header = port, header
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        answers = asyncio.create_task(_copy(there, writer))
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                back.write(head[:-2] + self._header + b"\r\n\r\n")
                fields = head.lower().split(b"content-length:")
                if len(fields) > 1:
                    back.write(await reader.readexactly(int(fields[1].split(b"\r\n")[0])))
                await back.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            answers.cancel()
        finally:
            back.close()
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


@pytest.fixture(scope="module")
def open_url(served: tuple[str, str]) -> Iterator[str]:
    url, token = served
    port = urlsplit(url).port
    assert port is not None
    relay = Relay(port, f"Authorization: Bearer {token}".encode())
    yield f"http://127.0.0.1:{relay.port}/mcp"
    relay.close()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_conformance_suite_passes(open_url: str, scenario: str) -> None:
    done = ran("conformance", "server", "--url", open_url, "--scenario", scenario)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def test_the_inspector_lists_and_calls_with_the_token(served: tuple[str, str]) -> None:
    url, token = served
    reach = ["--cli", "--transport", "http", "--server-url", url]
    reach += ["--header", f"Authorization: Bearer {token}"]
    listed = ran("mcp-inspector", *reach, "--method", "tools/list", "--strict")
    assert listed.returncode == 0, listed.stderr[-2000:]
    assert len(json.loads(listed.stdout)["tools"]) >= 12
    called = ran(
        "mcp-inspector", *reach, "--method", "tools/call", "--tool-name", "campaign_status"
    )
    assert json.loads(called.stdout)["structuredContent"]["mode"] == "evident"


def test_the_inspector_is_turned_away_without_the_token(served: tuple[str, str]) -> None:
    done = ran("mcp-inspector", "--cli", served[0], "--method", "tools/list")
    assert done.returncode != 0
    assert "tools" not in done.stdout
