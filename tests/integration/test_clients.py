"""The same check through other clients gives the same verdict.

The clients are looked for on PATH and in .cache/clients of the checkout, where `make clients`
puts them.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from inferproof.cli import main
from small_campaign import small_campaign

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / ".cache" / "clients"
PLACES = (CLIENTS / "node_modules" / ".bin", CLIENTS / "mcp-cli" / "bin")
SAME = ("verdict", "code", "ok")
MANIFEST = "contract: rms_norm\nlanguage: cpp\nsource: kernel.cpp\nentry: rms\n"
EMPTY_KERNEL = """#include <cstdint>
extern "C" void rms(const uint16_t*, const uint16_t*, uint16_t*, int64_t, int64_t, float) {}
"""


def program(name: str) -> str:
    path = os.pathsep.join((*map(str, PLACES), os.environ.get("PATH", "")))
    found = shutil.which(name, path=path)
    if found is None:
        pytest.skip(f"{name} is not installed: make clients")
    return found


def printed(argv: list[str]) -> str:
    path = os.pathsep.join((*map(str, PLACES), os.environ.get("PATH", "")))
    done = subprocess.run(
        argv,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PATH": path},
        timeout=300,
    )
    assert done.stdout, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small_campaign(tmp_path_factory.mktemp("clients") / "small")
    assert main(["seal", "--demo-key", "--campaign", str(folder)]) == 0
    servers: dict[str, dict[str, Any]] = {
        "mcpServers": {
            "inferproof": {
                "type": "stdio",
                "command": sys.executable,
                "args": ["-m", "inferproof.cli", "serve", "--campaign", str(folder)],
                "env": {},
            }
        }
    }
    (folder / "server_config.json").write_text(json.dumps(servers))
    return folder


@pytest.fixture(scope="module")
def checked(campaign: Path) -> Mapping[str, Any]:
    """One finished check, asked for by `inferproof call`, and its candidate."""
    folder = campaign / "candidate"
    folder.mkdir()
    (folder / "candidate.yaml").write_text(MANIFEST)
    (folder / "kernel.cpp").write_text(EMPTY_KERNEL)
    submitted = own(campaign, "submit_candidate", {"folder": str(folder)}, code=0)
    arguments = {"candidate": submitted["candidate"]}
    return {**own(campaign, "check_numerics", arguments, code=3), **arguments}


def own(campaign: Path, tool: str, arguments: Mapping[str, Any], *, code: int) -> dict[str, Any]:
    argv = [sys.executable, "-m", "inferproof.cli", "call", tool, json.dumps(arguments), "--json"]
    done = subprocess.run(
        [*argv, "--campaign", str(campaign)], check=False, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def same(answer: Mapping[str, Any], checked: Mapping[str, Any]) -> None:
    assert {key: answer[key] for key in SAME} == {key: checked[key] for key in SAME}


def inspector(campaign: Path, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    argv = [program("mcp-inspector"), "--cli", sys.executable, "-m", "inferproof.cli", "serve"]
    argv += ["--campaign", str(campaign), "--method", "tools/call", "--tool-name", tool]
    return json.loads(printed([*argv, "--tool-args-json", json.dumps(arguments)]))[
        "structuredContent"
    ]


def mcp_cli(campaign: Path, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    argv = [program("mcp-cli"), "cmd", "--config-file", str(campaign / "server_config.json")]
    argv += ["--server", "inferproof", "--tool", tool, "--tool-args", json.dumps(arguments)]
    text = printed([*argv, "--raw"])
    return json.loads(text[text.index("{") :])


CALLERS = {"mcp-inspector": inspector, "mcp-cli": mcp_cli}


@pytest.mark.parametrize("name", CALLERS)
def test_the_same_check_gives_the_same_verdict(
    name: str, campaign: Path, checked: Mapping[str, Any]
) -> None:
    call = CALLERS[name]
    answer = call(campaign, "check_numerics", {"candidate": checked["candidate"], "wait_s": 45})
    while answer["job"]["state"] in ("queued", "running"):
        answer = call(campaign, "job", {"job_id": answer["job"]["job_id"], "wait_s": 45})
    same(answer, checked)
    assert answer["job"]["job_id"] != checked["job"]["job_id"]


@pytest.mark.parametrize("name", CALLERS)
def test_the_same_job_gives_the_same_entry(
    name: str, campaign: Path, checked: Mapping[str, Any]
) -> None:
    answer = CALLERS[name](campaign, "job", {"job_id": checked["job"]["job_id"]})
    same(answer, checked)
    assert answer["entry"] == checked["entry"]


def test_the_schemas_pass_the_strict_lint_of_the_inspector(campaign: Path) -> None:
    argv = [program("mcp-inspector"), "--cli", sys.executable, "-m", "inferproof.cli", "serve"]
    argv += ["--campaign", str(campaign), "--method", "tools/list", "--strict"]
    path = os.pathsep.join((*map(str, PLACES), os.environ.get("PATH", "")))
    done = subprocess.run(
        argv, check=False, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["tools"]) > 0
