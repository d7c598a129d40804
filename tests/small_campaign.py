"""A sealed campaign so small that a check takes seconds, and candidates that fit it."""

import json
import shutil
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path

from inferproof.campaign.templates import init
from inferproof.ledger.signing import ApproverKey
from inferproof.pipeline import Keeper

CAMPAIGN = {
    "hidden_size: 1024": "hidden_size: 256",
    "speedup_at_least: 1.02": "speedup_at_least: 0.01",
    "job_wall_s: 300": "job_wall_s: 90",
}
CONTRACT = {
    "baselines": "[torch]",
    "  practice": "[{tokens: 1}, {tokens: 128}]",
    "  graded": "{draw: 2, from: {tokens: log_uniform}, neighbours: [1]}",
    "  timed": "{ranges: [{tokens: [12288, 16384]}], pairs: 6}",
    "inputs_like": "[normal, small_integers]",
    "mutants": "[zeros, half]",
}
CONTRACT_FILE = "contracts/kernels/rms_norm/contract.yaml"
RIGHT = """\
import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, eps: float) -> None:
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    y.copy_(wide * scale * weight.float())
"""
WRONG = RIGHT.replace("* weight.float()", "* 1.01 * weight.float()")
MANIFEST = """\
contract: rms_norm
language: python
source: kernel.py
entry: rms_norm
"""


def small_campaign(folder: Path) -> Path:
    """Return the folder of an unsealed campaign of one small kernel."""
    init(folder, "cpu-tiny")
    edit(folder / "campaign.yaml", CAMPAIGN)
    contract = folder / CONTRACT_FILE
    lines = contract.read_text(encoding="utf-8").splitlines()
    asked = {line: line.partition(":")[0] for line in lines}
    edit(
        contract, {old: f"{key}: {CONTRACT[key]}" for old, key in asked.items() if key in CONTRACT}
    )
    (folder / ".inferproof").mkdir(mode=0o700)
    return folder


def sealed_keeper(folder: Path) -> tuple[Keeper, ApproverKey]:
    """Return the keeper of a small campaign sealed with a demo key, and that key."""
    keeper = Keeper.open(small_campaign(folder))
    key = ApproverKey.create_demo(folder / ".inferproof/demo-approver.pem")
    keeper.seal(key, "demo")
    return keeper, key


def sealed_on(folder: Path, targets: dict[str, object]) -> Keeper:
    """Return the keeper of a small campaign with these targets beside `local`, sealed."""
    campaign = small_campaign(folder)
    text = json.dumps({"local": {"host": "local", "threads": 1}, **targets})
    (campaign / "targets.yaml").write_text(text, encoding="utf-8")
    keeper = Keeper.open(campaign)
    keeper.seal(ApproverKey.create_demo(campaign / ".inferproof/demo-approver.pem"), "demo")
    return keeper


def edit(path: Path, changes: dict[str, str]) -> None:
    """Replace each text in a file; every one must be there."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, f"{path} has no {old!r}"
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def python_candidate(folder: Path, source: str = RIGHT, *, manifest: str = MANIFEST) -> Path:
    """Return a candidate folder of one Python file."""
    folder.mkdir()
    (folder / "candidate.yaml").write_text(manifest, encoding="utf-8")
    (folder / "kernel.py").write_text(source, encoding="utf-8")
    return folder


def cpp_candidate(folder: Path, change: Callable[[str], str] = str) -> Path:
    """Return a folder with the demo's honest kernel, its source changed by `change`."""
    with as_file(files("inferproof.demo")) as demo:
        shutil.copytree(demo / "candidates" / "honest", folder)
    kernel = folder / "kernel.cpp"
    kernel.write_text(change(kernel.read_text(encoding="utf-8")), encoding="utf-8")
    return folder
