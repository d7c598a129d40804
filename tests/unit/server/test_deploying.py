"""Deployments for users: what goes at once, and what waits for a person."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferproof.campaign.templates import init
from inferproof.cli import main
from inferproof.core.errors import UsageError
from inferproof.ledger.signing import ApproverKey
from inferproof.pipeline import Keeper

ENGINE = Path(__file__).parents[2] / "integration" / "engines" / "contained"
MANIFEST = """\
contract: completions
engine: command
start: ["{python}", "serve.py", "{port}"]
"""
BASE = "registry.example/python:3.11"


@pytest.fixture
def campaign(tmp_path: Path) -> tuple[Path, str]:
    """Return a sealed campaign with a test place and one for users, and an engine."""
    root = tmp_path / "campaign"
    init(root, "engine-tiny")
    inventory = yaml.safe_load((root / "targets.yaml").read_text(encoding="utf-8"))
    inventory["local"]["places"] = {
        "try": {"kind": "truss", "base_image": BASE, "is_test": True},
        "shop": {"kind": "truss", "base_image": BASE},
    }
    (root / "targets.yaml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    (root / ".inferproof").mkdir(mode=0o700)
    keeper = Keeper.open(root)
    keeper.seal(ApproverKey.create_demo(root / ".inferproof/demo-approver.pem"), "demo")
    folder = tmp_path / "engine"
    shutil.copytree(ENGINE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "candidate.yaml").write_text(MANIFEST, encoding="utf-8")
    return root, keeper.submit_candidate(folder).digest


def run(campaign: tuple[Path, str], action: str, *more: str, place: str = "shop") -> int:
    root, digest = campaign
    argv = ["deployment", action, "qwen", "--campaign", str(root), "--place", place, "--json"]
    return main([*argv, "--candidate", digest, *more])


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def test_what_is_rendered_holds_the_engine_and_needs_nobody(
    campaign: tuple[Path, str], tmp_path: Path
):
    assert run(campaign, "render", "--out", str(tmp_path / "out")) == 0
    engine = (ENGINE / "serve.py").read_bytes()
    assert (tmp_path / "out" / "data" / "serve.py").read_bytes() == engine


def test_a_test_place_needs_no_approval(
    campaign: tuple[Path, str], capsys: pytest.CaptureFixture[str]
):
    assert run(campaign, "deploy", place="try") == UsageError.exit_code
    assert "runs hosted" in capsys.readouterr().err


def test_any_other_place_waits_for_a_persons_approval_of_this_very_deployment(
    campaign: tuple[Path, str], capsys: pytest.CaptureFixture[str]
):
    assert run(campaign, "deploy") == 4
    approval_id = said(capsys)["approval_id"]
    keeper = Keeper.open(campaign[0])
    request = keeper.find_request(approval_id)
    assert (request.action, request.candidate) == ("deploy qwen in shop", campaign[1])
    assert run(campaign, "deploy") == 4
    assert said(capsys)["approval_id"] == approval_id
    keeper.approve(request, ApproverKey.load_demo(campaign[0] / ".inferproof/demo-approver.pem"))
    assert run(campaign, "promote", "--to", "x") == 4
    capsys.readouterr()
    assert run(campaign, "deploy") == UsageError.exit_code
    assert "runs hosted" in capsys.readouterr().err
    assert run(campaign, "deploy") == 4
    assert said(capsys)["approval_id"] != approval_id
    assert keeper.verify(keeper.head()).ok


@pytest.mark.parametrize("name", ["..", "", "a/b", "-x", "UPPER"])
def test_what_is_no_name_of_a_deployment_is_refused_before_anything_is_done(
    campaign: tuple[Path, str], capsys: pytest.CaptureFixture[str], name: str
):
    folder = ["--campaign", str(campaign[0]), "--place", "try"]
    assert main(["deployment", "delete", *folder, "--", name]) == 2
    assert "no name of a deployment" in capsys.readouterr().err
    assert (campaign[0] / ".inferproof/ledger.jsonl").is_file()


def test_an_approval_covers_what_runs_and_where(
    campaign: tuple[Path, str], capsys: pytest.CaptureFixture[str]
):
    assert run(campaign, "deploy", "--model", "/other", "--replicas", "3") == 4
    request = Keeper.open(campaign[0]).find_request(said(capsys)["approval_id"])
    assert request.action == "deploy qwen in shop with model /other, replicas 3"


def test_a_place_that_is_not_sealed_is_refused(
    campaign: tuple[Path, str], capsys: pytest.CaptureFixture[str]
):
    assert run(campaign, "status", place="elsewhere") == 2
    assert "its places: shop, try" in capsys.readouterr().err
    path = campaign[0] / "targets.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("shop", "mine"), encoding="utf-8")
    assert run(campaign, "status", place="mine") == 2
    assert "targets.yaml" in capsys.readouterr().err
