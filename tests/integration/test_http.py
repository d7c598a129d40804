"""The real server over HTTP: one door, the same answers, candidates that come as uploads."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from inferproof.campaign.tree import read_tree
from inferproof.campaign.uploads import MOST_BYTES, packed
from inferproof.cli import main
from small_campaign import python_candidate, small_campaign

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
OTHER_USER = 65534


class Served:
    """A running `inferproof serve --http`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        argv = [sys.executable, "-m", "inferproof.cli", "serve", "--http"]
        argv += ["--listen", "127.0.0.1:0", "--campaign", str(folder)]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.told = self.process.stderr.readline()
        self.url = self.told.split()[1].rstrip(";")

    @property
    def token_file(self) -> Path:
        return self.folder / ".inferproof" / "http-token"

    @property
    def token(self) -> str:
        return self.token_file.read_text(encoding="ascii").strip()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def ask(self, tool: str, **arguments: object) -> Any:
        """Return a tool's result as the SDK's client gets it."""

        async def asked() -> Any:
            async with (
                httpx2.AsyncClient(headers=self.headers, timeout=60) as http,
                Client(streamable_http_client(self.url, http_client=http)) as client,
            ):
                return await client.call_tool(tool, arguments)

        return asyncio.run(asked())

    def submit(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
        """Return the exit code and answer of `inferproof submit --server`."""
        argv = ["submit", str(folder), "--server", self.url, "--token-file", str(self.token_file)]
        code = main([*argv, "--json"])
        return code, json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = small_campaign(tmp_path_factory.mktemp("http") / "small")
    assert main(["seal", "--demo-key", "--campaign", str(folder)]) == 0
    (folder / ".inferproof").chmod(0o755)
    server = Served(folder)
    yield server
    server.process.send_signal(signal.SIGTERM)
    with server.process:
        assert server.process.wait(timeout=20) == 0


def test_the_token_is_for_its_owner_and_only_its_digest_is_told(served: Served):
    assert served.token_file.stat().st_mode & 0o777 == 0o600
    assert served.token_file.parent.stat().st_mode & 0o777 == 0o700
    assert "SHA-256" in served.told
    assert served.token not in served.told


def test_nobody_comes_in_without_the_token_or_by_another_name(served: Served):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    for path in ("/mcp", "/candidates", "/"):
        url = httpx.URL(served.url).join(path)
        assert httpx.post(url, json=body, headers=accept).status_code == 401
        wrong = {**accept, "Authorization": "Bearer x"}
        assert httpx.post(url, json=body, headers=wrong).status_code == 401
        foreign = {**accept, **served.headers, "Host": "evil.example"}
        assert httpx.post(url, json=body, headers=foreign).status_code == 421
        page = {**accept, **served.headers, "Origin": "http://evil.example"}
        assert httpx.post(url, json=body, headers=page).status_code == 403


def test_the_server_listens_on_loopback_alone(served: Served):
    port = httpx.URL(served.url).port
    assert port is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=2)


def test_a_tool_answers_as_over_stdio(served: Served):
    result = served.ask("campaign_status")
    assert not result.is_error
    assert result.structured_content["mode"] == "evident"
    assert result.structured_content["ok"]


def test_a_folder_is_uploaded_and_no_path_is_opened(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = python_candidate(tmp_path / "candidate")
    refused = served.ask("submit_candidate", folder=str(folder))
    assert refused.is_error
    assert "opens no folder of yours" in refused.content[0].text
    code, answer = served.submit(folder, capsys)
    assert code == 0
    stored = served.folder / ".inferproof" / "candidates" / answer["candidate"]
    assert (stored / "kernel.py").read_bytes() == (folder / "kernel.py").read_bytes()


def test_what_is_no_candidate_is_refused_with_the_reason(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = python_candidate(tmp_path / "candidate")
    (folder / "candidate.yaml").unlink()
    argv = ["submit", str(folder), "--server", served.url, "--token-file", str(served.token_file)]
    assert main(argv) == 2
    assert "there is no such file" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_the_mode_is_enforced_for_another_user(served: Served, tmp_path: Path):
    folder = python_candidate(tmp_path / "candidate")
    child = (
        "import sys, urllib.request as u; data = sys.stdin.buffer.read();"
        "asked = u.Request(sys.argv[1], data, {'Authorization': sys.argv[2]});"
        "print(u.urlopen(asked).read().decode())"
    )
    argv = ["/usr/bin/python3", "-c", child]
    argv += [str(httpx.URL(served.url).join("/candidates")), served.headers["Authorization"]]
    data = packed(read_tree(folder))
    done = subprocess.run(
        argv,
        input=data,
        capture_output=True,
        user=OTHER_USER,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mode"] == "enforced"


def test_what_is_announced_too_large_is_refused_before_it_comes(served: Served):
    assert answered(served, MOST_BYTES + 1).startswith(b"HTTP/1.1 413 ")


def test_who_hangs_up_in_mid_upload_leaves_nothing_in_the_log(tmp_path: Path):
    folder = small_campaign(tmp_path / "small")
    assert main(["seal", "--demo-key", "--campaign", str(folder)]) == 0
    server = Served(folder)
    with begun(server, 1000):
        pass
    assert answered(server, MOST_BYTES + 1).startswith(b"HTTP/1.1 413 ")
    server.process.send_signal(signal.SIGTERM)
    assert "Traceback" not in server.process.communicate(timeout=20)[1]


def begun(server: Served, length: int) -> socket.socket:
    """Return a connection on which an upload of `length` bytes has begun."""
    port = httpx.URL(server.url).port
    assert port is not None
    caller = socket.create_connection(("127.0.0.1", port), timeout=20)
    head = f"POST /candidates HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {length}\r\n"
    caller.sendall(f"{head}Authorization: Bearer {server.token}\r\n\r\nbegun".encode())
    return caller


def answered(server: Served, length: int) -> bytes:
    """Return the beginning of the answer to an upload that has only begun."""
    with begun(server, length) as caller:
        return caller.recv(100)
