"""The zoo in device code is whole: its rows, folders, twins and the table that was printed."""

import re
from pathlib import Path

import pytest

from gpu.zoo import KERNELS, Row, Scale, load_rows, prepare

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
    assert (len(honest), len(cheats)) == (55, 69)


def test_the_printed_table_has_every_row_and_an_expected_code() -> None:
    cells = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \| (\w+) \|", TABLE.read_text(), re.MULTILINE)
    expected = {row.folder: set(row.expect) or {"accepted"} for row in ROWS}
    assert {folder for folder, _, _ in cells} == set(expected)
    assert all(code in expected[folder] for folder, _, code in cells)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.folder)
def test_a_row_becomes_a_job(row: Row, tmp_path: Path) -> None:
    scale = Scale(full=False, timing=row.timing, one_shape=row.one_shape)
    prepare(tmp_path, KERNELS / row.folder, row.folder, scale)
    assert (tmp_path / row.folder / "job.json").is_file()
