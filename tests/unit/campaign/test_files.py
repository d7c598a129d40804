from pathlib import Path

import pytest

from inferproof.campaign.files import open_campaign, sealable_files
from inferproof.core.canonical import digest_bytes
from inferproof.core.errors import FileFormatError


def refusal(folder: Path) -> FileFormatError:
    with pytest.raises(FileFormatError) as caught:
        open_campaign(folder)
    return caught.value


def test_a_campaign_folder_is_one_value(campaign_folder: Path) -> None:
    files = open_campaign(campaign_folder)
    assert files.campaign.name == "fixture"
    assert list(files.contracts) == ["rms_norm"]
    assert files.targets["local"].threads == 2
    assert files.state_dir == campaign_folder / ".inferproof"


@pytest.mark.parametrize(
    ("name", "mend"),
    [("campaign.yaml", "inferproof init"), ("targets.yaml", "local: {host: local}")],
)
def test_missing_pieces_say_how_to_get_them(campaign_folder: Path, name: str, mend: str) -> None:
    (campaign_folder / name).unlink()
    error = refusal(campaign_folder)
    assert name in error.what
    assert mend in error.hint
    with pytest.raises(FileFormatError, match=name):
        sealable_files(campaign_folder)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("target: local", "target: gpu", 9, "'gpu' is not in targets.yaml, which has local"),
        (
            "contract: rms_norm",
            "contract: softmax",
            11,
            "no contract folder contracts/kernels/softmax",
        ),
        ("hidden_size: 64", "hidden: 64", 7, "has no 'hidden_size'"),
    ],
)
def test_files_must_fit_together(
    campaign_folder: Path, old: str, new: str, line: int, says: str
) -> None:
    path = campaign_folder / "campaign.yaml"
    path.write_text(path.read_text().replace(old, new, 1))
    error = refusal(campaign_folder)
    assert says in error.what
    assert error.line == line


def test_a_contract_is_a_component_once(campaign_folder: Path) -> None:
    path = campaign_folder / "campaign.yaml"
    entry = "  - {contract: rms_norm, speedup_at_least: 1.05}\n"
    path.write_text(path.read_text().replace(entry, entry * 2))
    assert "'rms_norm' appears twice" in refusal(campaign_folder).what


def test_the_seal_covers_every_file_that_a_person_wrote(campaign_folder: Path) -> None:
    (campaign_folder / "GOAL.md").write_text("rendered\n")
    (campaign_folder / "contracts" / "notes.txt").write_text("n\n")
    files = sealable_files(campaign_folder)
    assert list(files) == [
        "campaign.yaml",
        "targets.yaml",
        "contracts/kernels/rms_norm/contract.yaml",
        "contracts/kernels/rms_norm/reference.py",
        "contracts/notes.txt",
    ]
    assert files["contracts/notes.txt"] == digest_bytes(b"n\n")


@pytest.mark.parametrize(
    "place", ["campaign.yaml", "targets.yaml", "contracts", "contracts/kernels"]
)
def test_links_are_never_followed(campaign_folder: Path, tmp_path: Path, place: str) -> None:
    (campaign_folder / place).rename(tmp_path / "moved")
    (campaign_folder / place).symlink_to(tmp_path / "moved")
    assert "symbolic links" in refusal(campaign_folder).what
    with pytest.raises(FileFormatError, match="symbolic links"):
        sealable_files(campaign_folder)
