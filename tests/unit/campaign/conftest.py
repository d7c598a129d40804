"""A campaign folder of one's own for each test."""

import shutil
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture
def campaign_folder(tmp_path: Path) -> Path:
    """Return a writable copy of the fixture campaign."""
    return Path(shutil.copytree(DATA, tmp_path / "campaign"))


@pytest.fixture
def contract_folder(campaign_folder: Path) -> Path:
    """Return the rms_norm contract of the fixture campaign."""
    return campaign_folder / "contracts" / "kernels" / "rms_norm"


@pytest.fixture
def candidate_folder(tmp_path: Path) -> Path:
    """Return a candidate with a source and one folder."""
    folder = tmp_path / "mine"
    (folder / "include").mkdir(parents=True)
    (folder / "candidate.yaml").write_text(
        "contract: rms_norm\nlanguage: cpp\nsource: kernel.cpp\nentry: rms_norm\nflags: [-g]\n"
    )
    (folder / "kernel.cpp").write_text('#include "include/norm.h"\n')
    (folder / "include" / "norm.h").write_text("#pragma once\n")
    return folder
