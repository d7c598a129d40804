"""The demo, kernels and engines, with every job on another machine: the same acts end the same."""

import json
import sys
from pathlib import Path

import pytest

from inferproof import demo
from inferproof.campaign.templates import shipped_model
from sshd import Sshd


@pytest.mark.zoo
@pytest.mark.timeout(1800)
def test_the_demo_ends_there_as_it_ends_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = shipped_model()
    edit = getattr(demo, "_edit_contracts")  # noqa: B009 (what a person writes before the seal)
    with Sshd(tmp_path / "sshd") as box:
        there = box.target(
            tmp_path / "work",
            python=sys.executable,
            threads=1,
            models={model.name: str(model.folder)},
        )

        def elsewhere(campaign: Path, *, search: bool) -> None:
            edit(campaign, search=search)
            (campaign / "targets.yaml").write_text(json.dumps({"local": there}))

        monkeypatch.setattr(demo, "_edit_contracts", elsewhere)
        campaign = tmp_path / "campaign"
        assert demo.run(keep=campaign, model=model, search=True, as_json=False) == 0
    assert not (campaign / ".inferproof" / "jobs").exists(), "a job ran here"
