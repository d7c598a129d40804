"""Plain search over a real engine's options, through server and machine that die on the way."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import inferproof.demo
from inferproof.campaign.templates import Model, init
from inferproof.core.values import JobStatus
from inferproof.ledger.signing import ApproverKey
from inferproof.ledger.verify import Report
from inferproof.pipeline import Keeper
from inferproof.search.arm import SearchReport

pytestmark = [pytest.mark.integration, pytest.mark.zoo, pytest.mark.timeout(600)]
DEMO = Path(inferproof.demo.__file__).parent
# An engine with one option: as it is by default it idles at each step.
TUNABLE = """
import sys
import time

import server
import torch
from model import Model

at = sys.argv.index("--variant") if "--variant" in sys.argv else None
variant = "slow" if at is None else sys.argv[at + 1]
if at is not None:
    del sys.argv[at : at + 2]
if variant == "crashing":
    sys.exit("this machine cannot do that")


class Tunable(Model):
    def prefill(self, slot, ids):
        if variant != "broken":
            return super().prefill(slot, ids)
        cut = max(0, len(ids) - 8)  # fastest of all, and not the model
        return torch.cat([torch.zeros(cut, len(self.embed)), super().prefill(slot, ids[cut:])])

    def decode(self, slots, ids, places):
        if variant == "slow":
            time.sleep(0.03)
        return super().decode(slots, ids, places)


server.main(Tunable)
"""
SEARCH = """
search:
  space:
    parameters:
      variant: {values: [fast, crashing, broken], default: null, flag: --variant}
  traffic: [{name: single, concurrency: 1, requests: 4, isl: [24, 32], osl: [16, 20]}]
  metrics: [tpot_ms]
  trials: 3
  finalists: 1
  repeats: 2
"""
START = '"{python} {model}/tunable.py --model {model} --port {port} --threads {threads}"'


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """Return a sealed campaign whose baseline has three variants, one of them good."""
    tmp_path.chmod(0o755)
    model, folder = tmp_path / "model", tmp_path / "campaign"
    shutil.copytree(DEMO / "model", model)
    for name in ("model.py", "server.py"):
        shutil.copy(DEMO / "engines/static_cache" / name, model / name)
    (model / "tunable.py").write_text(TUNABLE)
    init(folder, "engine-tiny", Model("tiny", model))
    contract = folder / "contracts/services/completions/contract.yaml"
    lines = contract.read_text().splitlines()
    baseline = f"baseline: {{engine: command, options: {{start: {START}}}}}"
    lines = [baseline if line.startswith("baseline:") else line for line in lines]
    contract.write_text("\n".join(lines) + SEARCH)
    (folder / ".inferproof").mkdir(mode=0o700)
    keeper = Keeper.open(folder)
    keeper.seal(ApproverKey.create_demo(keeper.state_dir / "demo-approver.pem"), "demo")
    return folder


def searched(campaign: Path) -> SearchReport:
    keeper = Keeper.open(campaign)
    return asyncio.run(keeper.search.go_on("", target="local", wait_s=500, on_progress=None))


def verified(campaign: Path) -> Report:
    keeper = Keeper.open(campaign)
    return keeper.verify(keeper.head())


def until(found: Callable[[], bool], limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def progress(campaign: Path) -> int:
    """Return how many starts the newest job is past; -1 before it tells."""
    told = sorted(campaign.glob(".inferproof/jobs/search-config-*/progress.json"))
    return json.loads(told[-1].read_text())["done"] if told else -1


def killed(campaign: Path, *, with_supervisor: bool) -> None:
    """Start a search in a server of its own and kill it in its second start, and its job too."""
    command = [sys.executable, "-m", "inferproof.cli", "call", "search_config", "{}"]
    server = subprocess.Popen(
        [*command, "--campaign", str(campaign)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: progress(campaign) >= 1)
    server.kill()
    server.wait()
    if with_supervisor:
        (job,) = campaign.glob(".inferproof/jobs/search-config-*")
        os.kill(int((job / "pid").read_text().split()[0]), signal.SIGKILL)


def test_after_kill_9_a_search_goes_on_and_what_is_invalid_is_never_the_best(campaign: Path):
    killed(campaign, with_supervisor=True)
    lost = searched(campaign)
    assert lost.job is not None
    assert lost.job.status is JobStatus.LOST
    assert lost.standing.counted == 0
    report = searched(campaign)
    found = report.standing
    assert (report.job, found.phase, found.counted) == (None, "done", 3)
    faults = {str(each.settings["variant"]): each.fault for each in found.explored}
    crashing, broken = faults["crashing"], faults["broken"]
    assert crashing is not None
    assert crashing.code.value == "crashed"
    assert broken is not None
    assert broken.code.value in ("unfaithful", "wrong_tokens")
    assert found.tuned is not None
    assert found.tuned.settings == {"variant": "fast"}
    assert found.tuned.low > 1
    keeper = Keeper.open(campaign)
    bar = keeper.search.bar(keeper.sealed().contracts["completions"], "local")
    assert bar is not None
    assert str(bar.options["start"]).endswith("--variant fast")
    assert verified(campaign).ok


def test_a_job_outlives_the_server_that_started_it_and_its_trials_count(campaign: Path):
    killed(campaign, with_supervisor=False)
    found = searched(campaign).standing
    jobs = [*campaign.glob(".inferproof/jobs/search-config-*")]
    assert (found.phase, found.counted, len(jobs)) == ("done", 3, 2)
    assert verified(campaign).ok
