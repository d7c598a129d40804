"""The zoo in device code is whole: its rows, folders, twins and the table that was printed."""

import re
from pathlib import Path

import pytest

from gpu.zoo import KERNELS, Row, load_rows, prepare

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
    assert (len(honest), len(cheats)) == (64, 97)


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
