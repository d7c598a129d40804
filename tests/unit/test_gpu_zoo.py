"""The zoo in device code is whole: its rows, folders, twins and the table that was printed."""

import re
from pathlib import Path

import pytest

from gpu.overlay import laid_out
from gpu.zoo import KERNELS, Row, Shard, load_rows, prepare

ROWS = load_rows()
TABLE = Path(__file__).parents[2] / "docs" / "gpu.md"


def test_every_folder_is_one_row() -> None:
    named = [row.folder for row in ROWS]
    assert sorted(named) == sorted(path.name for path in KERNELS.iterdir() if path.is_dir())


def test_every_cheat_has_an_honest_twin_and_a_reason() -> None:
    honest = {row.folder for row in ROWS if not row.expect}
    cheats = [row for row in ROWS if row.expect]
    assert {row.twin for row in cheats} <= honest
    assert all(row.folder.startswith("honest-") for row in ROWS if not row.expect)
    assert (len(honest), len(cheats)) == (65, 101)


def test_the_printed_table_has_every_row_that_ran_and_an_expected_code() -> None:
    text = TABLE.read_text()
    cells = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \| (\w+) \|", text, re.MULTILINE)
    unrun = re.findall(r"`([a-z0-9-]+)`", " ".join(re.findall(r"^Not run yet: (.*)$", text, re.M)))
    expected = {row.folder: set(row.expect) or {"accepted"} for row in ROWS}
    for row in ROWS:
        if row.not_applicable:
            expected[row.folder] |= {"not_applicable"}
    assert sorted([*(folder for folder, _, _ in cells), *unrun]) == sorted(expected)
    assert all(code in expected[folder] for folder, _, code in cells)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.folder)
def test_a_row_becomes_a_job(row: Row, tmp_path: Path) -> None:
    prepare(tmp_path, KERNELS / row.folder, row.folder, row.scale)
    assert (tmp_path / row.folder / "job.json").is_file()


def test_the_parts_of_the_zoo_are_the_whole_and_meet_nowhere() -> None:
    parts = [Shard.parse(f"{number}/4").part(ROWS) for number in (1, 2, 3, 4)]
    assert sorted(row.folder for part in parts for row in part) == sorted(r.folder for r in ROWS)
    assert all(len(part) in (len(ROWS) // 4, len(ROWS) // 4 + 1) for part in parts)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "one/two", "4"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no part"):
        Shard.parse(text)


def a_pair(tmp_path: Path, was: str) -> Path:
    """Return a candidate that shares the source of an honest one but for `was`."""
    honest, cheat = tmp_path / "honest", tmp_path / "cheat"
    for folder in (honest, cheat):
        folder.mkdir()
        (folder / "candidate.yaml").write_text("source: kernel.cu\nnote: " + folder.name)
    (honest / "kernel.cu").write_text("y = x + eps;\nz = x;\n")
    edits = f'of: honest\nedits:\n- {{was: "{was}", now: "y = x"}}\n'
    (cheat / "edits.yaml").write_text(edits)
    return cheat


def test_a_candidate_that_edits_another_is_that_one_with_its_own_manifest(tmp_path: Path) -> None:
    whole = laid_out(a_pair(tmp_path, "y = x + eps"), tmp_path / "out")
    assert (whole / "kernel.cu").read_text() == "y = x;\nz = x;\n"
    assert (whole / "candidate.yaml").read_text().endswith("note: cheat")
    assert sorted(path.name for path in whole.iterdir()) == ["candidate.yaml", "kernel.cu"]


@pytest.mark.parametrize("was", ["w = x", " = x"])
def test_an_edit_of_what_stands_nowhere_or_twice_is_an_error(tmp_path: Path, was: str) -> None:
    with pytest.raises(ValueError, match=r"stands \d times"):
        laid_out(a_pair(tmp_path, was), tmp_path / "out")
