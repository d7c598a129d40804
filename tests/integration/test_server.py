"""The real server over stdio: it starts, answers, is stopped, and jobs outlive it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from inferproof.cli import main

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
KERNEL = """#include <cstdint>
#include <cmath>
static float wide(uint16_t b) { union { uint32_t u; float f; } v{(uint32_t)b << 16}; return v.f; }
static uint16_t narrow(float f) {
  union { float f; uint32_t u; } v{f};
  if (f != f) return 0x7fc0;
  return (uint16_t)((v.u + 0x7fff + ((v.u >> 16) & 1)) >> 16);
}
extern "C" void rms(const uint16_t* x, const uint16_t* w, uint16_t* y,
                    int64_t tokens, int64_t hidden, float eps) {
#pragma omp parallel for
  for (int64_t t = 0; t < tokens; t++) {
    const uint16_t* row = x + t * hidden;
    double sum = 0;
    for (int64_t h = 0; h < hidden; h++) { float v = wide(row[h]); sum += (double)v * v; }
    float scale = (float)(1.0 / std::sqrt(sum / (double)hidden + eps));
    for (int64_t h = 0; h < hidden; h++) y[t * hidden + h] = narrow(wide(row[h]) * scale * WEIGHT);
  }
}
"""
MANIFEST = "contract: rms_norm\nlanguage: cpp\nsource: kernel.cpp\nentry: rms\n"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("campaign") / "tiny"
    assert main(["init", "--template", "cpu-tiny", "--campaign", str(folder)]) == 0
    assert main(["seal", "--demo-key", "--campaign", str(folder)]) == 0
    return folder


def candidate_folder(parent: Path, name: str, weight: str) -> str:
    folder = parent / name
    folder.mkdir()
    (folder / "candidate.yaml").write_text(MANIFEST)
    (folder / "kernel.cpp").write_text(KERNEL.replace("WEIGHT", weight))
    return str(folder)


def command(campaign: Path) -> list[str]:
    return [sys.executable, "-m", "inferproof.cli", "serve", "--campaign", str(campaign)]


def client(campaign: Path, mode: str = "auto") -> Client:
    program, *arguments = command(campaign)
    return Client(StdioServerParameters(command=program, args=arguments), mode=mode)


async def ask(client: Client, tool: str, **arguments: Any) -> Mapping[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return result.structured_content


async def ended(client: Client, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    while answer["job"]["state"] in ("queued", "running"):
        answer = await ask(client, "job", job_id=answer["job"]["job_id"], wait_s=45)
    return answer


@pytest.fixture
def server(campaign: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        command(campaign), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.kill()


def greet(server: "subprocess.Popen[bytes]") -> bytes:
    assert server.stdin is not None
    assert server.stdout is not None
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    server.stdin.write(json.dumps(request).encode() + b"\n")
    server.stdin.flush()
    return server.stdout.readline()


def test_the_first_line_on_stdout_is_json(server: "subprocess.Popen[bytes]") -> None:
    answer = json.loads(greet(server))
    assert answer["result"]["serverInfo"]["name"] == "inferproof"
    assert len(answer["result"]["instructions"]) <= 500


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_at_once(
    server: "subprocess.Popen[bytes]", number: signal.Signals
) -> None:
    greet(server)
    start = time.monotonic()
    server.send_signal(number)
    assert server.wait(timeout=20) == 0
    assert time.monotonic() - start < 10


def test_the_end_of_stdin_ends_the_server(server: "subprocess.Popen[bytes]") -> None:
    greet(server)
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(timeout=20) == 0


def test_a_server_that_serves_no_campaign_still_starts_and_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        async with client(tmp_path) as agent:
            assert (await agent.list_tools()).tools
            result = await agent.call_tool("campaign_status", {})
            assert result.is_error
            assert "inferproof init" in str(result.content)

    asyncio.run(run())


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in a virtual environment")
def test_a_host_finds_the_server_of_an_environment_that_is_active_here_alone(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    arguments = ["install", "claude", "--campaign", str(campaign), "--dir", str(tmp_path)]
    assert main(arguments) == 0
    registered = json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]["inferproof"]
    assert Path(registered["command"]).is_absolute()
    assert Path(registered["command"]).exists()


def test_resources_and_prompts_come_from_the_sealed_campaign(campaign: Path) -> None:
    async def run() -> None:
        async with client(campaign) as agent:
            goal = await agent.get_prompt("goal", {})
            assert "rms_norm" in str(goal.messages)
            assert "DEMO MODE" in str(goal.messages)
            skill = await agent.get_prompt("implement-component", {})
            assert "precision_lost" in str(skill.messages)
            contract = await agent.read_resource("inferproof://contracts/rms_norm")
            assert "kind: kernel" in str(contract.contents)
            ledger = await agent.read_resource("inferproof://ledger")
            assert "approver_signature" in str(ledger.contents)

    asyncio.run(run())


@pytest.mark.parametrize("era", ["legacy", "auto"])
def test_a_kernel_goes_from_folder_to_recorded_verdict(
    campaign: Path, tmp_path: Path, era: str
) -> None:
    """A kernel that ignores the weight is refused, for the reason, in practice and by the gate."""

    async def run() -> None:
        async with client(campaign, era) as agent:
            folder = candidate_folder(tmp_path, "wrong", "1.0f")
            submitted = await ask(agent, "submit_candidate", folder=folder)
            built = await ask(agent, "compile_kernel", candidate=submitted["candidate"])
            built = await ended(agent, built)
            assert built["verdict"] == "pass"
            checked = await ask(agent, "check_numerics", candidate=submitted["candidate"])
            checked = await ended(agent, checked)
            assert (checked["verdict"], checked["code"]) == ("fail", "wrong_values")
            status = await ask(agent, "campaign_status")
            assert status["head"] == checked["head"]
            named = await ask(agent, "evidence", ref=checked["evidence"], section="calls")
            assert named["total_rows"] > 0

    asyncio.run(run())
    assert main(["verify", "--campaign", str(campaign)]) == 0


def test_cancelling_a_check_ends_its_processes_and_is_recorded(
    campaign: Path, tmp_path: Path
) -> None:
    async def run() -> None:
        async with client(campaign) as agent:
            folder = candidate_folder(tmp_path, "stopped", "wide(w[h])")
            submitted = await ask(agent, "submit_candidate", folder=folder)
            moving = asyncio.Event()

            async def progress(progress: float, total: float | None, message: str | None) -> None:
                moving.set()

            check = asyncio.create_task(
                agent.call_tool(
                    "check_numerics",
                    {"candidate": submitted["candidate"]},
                    progress_callback=progress,
                )
            )
            await moving.wait()
            check.cancel()
            with pytest.raises(asyncio.CancelledError):
                await check
            newest = (await ask(agent, "job"))["jobs"][0]
            final = await ended(agent, await ask(agent, "job", job_id=newest["job_id"], wait_s=45))
            assert final["job"]["state"] == "cancelled"
            assert newest["job_id"] not in _commands()

    asyncio.run(run())


@pytest.mark.zoo
def test_a_job_outlives_the_server_and_is_found_again(campaign: Path, tmp_path: Path) -> None:
    async def start() -> str:
        async with client(campaign) as agent:
            folder = candidate_folder(tmp_path, "long", "wide(w[h]) ")
            submitted = await ask(agent, "submit_candidate", folder=folder)
            answer = await ask(agent, "check_numerics", candidate=submitted["candidate"], wait_s=0)
            assert answer["verdict"] is None
            return answer["job"]["job_id"]

    async def finish(job_id: str) -> None:
        async with client(campaign) as agent:
            answer = await ended(agent, await ask(agent, "job", job_id=job_id, wait_s=45))
            assert answer["job"]["state"] == "done"
            assert answer["verdict"] is not None

    job_id = asyncio.run(start())
    asyncio.run(finish(job_id))


def _commands() -> str:
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(lines)
