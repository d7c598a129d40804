import os
import shutil
from importlib import resources
from pathlib import Path

import pytest

from inferproof.campaign.files import open_campaign
from inferproof.campaign.templates import (
    TEMPLATES,
    Template,
    init,
    named_model,
    shipped_model,
)
from inferproof.core.errors import InfrastructureError, UsageError


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_campaign_loads(tmp_path: Path, template: Template) -> None:
    written = init(tmp_path / "My Model 1", template)
    files = open_campaign(tmp_path / "My Model 1")
    assert files.campaign.name == "my-model-1"
    assert written[-1].name == "campaign.yaml"
    library = resources.files("inferproof.contracts")
    for sealed in files.contracts.values():
        for name in sealed.files:
            shipped = library.joinpath(sealed.place.removeprefix("contracts/"), name)
            assert (files.root / sealed.place / name).read_bytes() == shipped.read_bytes()


@pytest.mark.parametrize("name", ["123", "null", "1e3", "...", "Ünï"])
def test_any_folder_name_gives_a_valid_campaign_name(tmp_path: Path, name: str) -> None:
    init(tmp_path / name, "cpu-tiny")
    assert open_campaign(tmp_path / name).campaign.name


@pytest.mark.parametrize("place", ["campaign.yaml", "contracts/kernels/rms_norm/contract.yaml"])
def test_nothing_is_overwritten(tmp_path: Path, place: str) -> None:
    mine = tmp_path / place
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(UsageError, match="never overwritten"):
        init(tmp_path, "cpu-tiny")
    assert mine.read_text() == "mine"
    assert not (tmp_path / "targets.yaml").exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((InfrastructureError, UsageError)):
        init(tmp_path / "file" / "below", "cpu-tiny")


def test_a_model_of_ones_own_is_named_in_campaign_and_targets(tmp_path: Path) -> None:
    model = tmp_path / "my model: {x}"
    shutil.copytree(shipped_model().folder, model)
    init(tmp_path / "campaign", "engine-tiny", named_model(f"mine={model}"))
    files = open_campaign(tmp_path / "campaign")
    assert files.campaign.model is not None
    assert files.campaign.model.name == "mine"
    assert files.targets["local"].models == {"mine": str(model)}


def test_a_folder_that_is_no_model_is_told_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json"):
        init(tmp_path / "campaign", "engine-tiny", named_model(str(tmp_path)))
    assert not (tmp_path / "campaign").exists()


def test_a_model_that_is_not_whole_is_told_and_nothing_written(tmp_path: Path) -> None:
    model = tmp_path / "cut"
    shutil.copytree(shipped_model().folder, model)
    weights = model / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    with pytest.raises(UsageError, match=r"no whole folder of a model: model\.safetensors is"):
        init(tmp_path / "campaign", "engine-tiny", named_model(str(model)))
    assert not (tmp_path / "campaign").exists()


def test_a_template_without_engines_takes_no_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="serves no model"):
        init(tmp_path / "campaign", "kernel", named_model(str(tmp_path)))
