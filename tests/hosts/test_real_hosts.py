"""Real agent hosts, installed by us and driven by a scripted model, work on a campaign.

The hosts are looked for on PATH and in .cache/clients of the checkout, where `make clients`
puts them. Whatever they send to the outside is refused at once: no account and no network.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hosts.scripted_model import Agent, Answer, Call, Model, serving
from inferproof.pipeline import Keeper
from inferproof.tools import TOOLS
from small_campaign import WRONG, python_candidate, sealed_keeper

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]

CLIENTS = Path(__file__).parents[2] / ".cache" / "clients" / "node_modules" / ".bin"
PATH = os.pathsep.join((str(CLIENTS), os.environ.get("PATH", "")))
HOST_TIMEOUT_S = 300
PROMPT = "Make the kernel faster."
NOWHERE = "http://127.0.0.1:9"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A sealed campaign, a candidate's folder, and a home without anything in it."""

    keeper: Keeper
    candidate: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """What a host sees: nothing of ours but PATH, and no way out."""
        return {"PATH": PATH, "HOME": str(self.home), "HTTPS_PROXY": NOWHERE, "LANG": "C.UTF-8"}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    keeper, _ = sealed_keeper(tmp_path / "campaign")
    home = tmp_path / "home"
    home.mkdir()
    candidate = python_candidate(tmp_path / "kernel", WRONG)
    return Scene(keeper=keeper, candidate=candidate, home=home)


def installed(scene: Scene, host: str) -> None:
    """Register with the host as a person does."""
    argv = [sys.executable, "-m", "inferproof.cli", "install", host]
    subprocess.run([*argv, "--campaign", str(scene.keeper.root)], check=True)


def program(name: str) -> str:
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"{name} is not installed: make clients")
    return found


def ran(scene: Scene, argv: Sequence[str], more: Mapping[str, str]) -> str:
    done = subprocess.run(
        argv,
        cwd=scene.keeper.root,
        env={**scene.environment, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HOST_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def claude(scene: Scene, model: Model) -> str:
    """Run Claude Code in the campaign's folder; the person has approved the project's server."""
    trusted = {"hasTrustDialogAccepted": True, "enabledMcpjsonServers": ["inferproof"]}
    project = {str(scene.keeper.root): trusted}
    config = {"hasCompletedOnboarding": True, "projects": project}
    (scene.home / ".claude.json").write_text(json.dumps(config))
    more = {
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "none",
        "NO_PROXY": "127.0.0.1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return ran(scene, [program("claude"), "-p", PROMPT, "--allowedTools", "mcp__inferproof"], more)


def codex(scene: Scene, model: Model) -> str:
    """Run Codex in the campaign's folder; the person has said that the folder is trusted."""
    folder = scene.home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        'model_provider = "scripted"\nmodel = "scripted"\ncheck_for_update_on_startup = false\n'
        "[analytics]\nenabled = false\n"
        f"[projects.{json.dumps(str(scene.keeper.root))}]\n"
        'trust_level = "trusted"\n'
        "[model_providers.scripted]\n"
        f'name = "scripted"\nbase_url = "{model.url}/v1"\n'
        'wire_api = "responses"\nenv_key = "SCRIPTED_KEY"\n'
    )
    argv = [program("codex"), "exec", "--skip-git-repo-check", PROMPT]
    return ran(scene, argv, {"SCRIPTED_KEY": "none", "NO_PROXY": "127.0.0.1"})


HOSTS: dict[str, Callable[[Scene, Model], str]] = {"claude": claude, "codex": codex}


def working(folder: Path) -> Agent:
    """Return an agent that looks at the campaign, submits `folder` and has it checked."""

    def agent(answers: Sequence[Answer]) -> Call | None:
        match len(answers):
            case 0:
                return Call(tool="campaign_status", arguments={})
            case 1:
                return Call(tool="submit_candidate", arguments={"folder": str(folder)})
            case 2:
                arguments = {"candidate": answers[1]["candidate"], "purpose": "graded"}
                return Call(tool="check_numerics", arguments=arguments)
            case _:
                job = answers[-1]["job"]
                if job["state"] not in ("queued", "running"):
                    return None
                return Call(tool="job", arguments={"job_id": job["job_id"], "wait_s": 45})

    return agent


@pytest.mark.parametrize("host", HOSTS)
def test_an_installed_host_offers_our_tools_and_its_agents_work_is_on_record(
    host: str, scene: Scene
):
    program(host)
    installed(scene, host)
    with serving(working(scene.candidate)) as model:
        said = HOSTS[host](scene, model)
    assert "done" in said
    assert model.offered == {tool.function.__name__ for tool in TOOLS}
    assert "start-campaign" in json.dumps(model.conversation[0]), "the skills are not offered"
    status, submitted, *_, checked = model.answers
    assert status["ok"]
    assert checked["verdict"] == "fail"
    assert checked["code"] in ("precision_lost", "wrong_values")

    (stored,) = scene.keeper.ledger.entries("candidate")
    (attempt,) = scene.keeper.ledger.entries("attempt")
    (outcome,) = scene.keeper.ledger.entries("outcome")
    assert stored.body["candidate"] == submitted["candidate"] == attempt.body["candidate"]
    assert (attempt.body["tool"], attempt.body["purpose"]) == ("check_numerics", "graded")
    assert attempt.body["job_id"] == outcome.body["job_id"] == checked["job"]["job_id"]
    assert (outcome.body["overall"], outcome.digest) == (checked["verdict"], checked["entry"])
    assert scene.keeper.verify(checked["head"]).ok
