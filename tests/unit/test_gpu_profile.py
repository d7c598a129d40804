"""Each kernel built for one bottleneck is asked for, becomes a job, and is in the printed table."""

import json
import re
from pathlib import Path

import pytest

from gpu.profile import OURS, ROWS, Row, judge, prepare

TABLE = Path(__file__).parents[2] / "docs" / "gpu.md"
REAL = Path(__file__).parent / "remote" / "ncu"


def test_every_folder_is_one_row() -> None:
    ours = [row.folder.name for row in ROWS if row.folder.parent == OURS]
    assert sorted(ours) == sorted(path.name for path in OURS.iterdir() if path.is_dir())
    kinds = [row.expect for row in ROWS if row.folder.parent == OURS]
    assert (len(kinds), len(set(kinds))) == (12, 6)


def test_the_printed_table_has_every_row_and_what_it_was_built_for() -> None:
    section = TABLE.read_text().partition("## Profile")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| `([a-z-]+)`[^|]*\| (\w+) \| [0-9.]+ \|", section, re.MULTILINE)
    assert dict(cells) == {row.folder.name: row.expect for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.folder.name)
def test_a_row_becomes_a_job(row: Row, tmp_path: Path) -> None:
    prepare(tmp_path, row)
    asked = json.loads((tmp_path / row.folder.name / "job.json").read_text())
    assert asked["verb"] == "profile"
    assert asked["spec"]["dims"] == dict(row.dims)


@pytest.mark.parametrize("named", ["memory", "latency"])
def test_a_wrong_bottleneck_is_not_well(
    named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads((REAL / "honest-rms-norm-fast.json").read_text())
    found: dict[str, object] = {}
    for row in ROWS:
        bound = named if row.expect == "memory" else row.expect
        bottleneck = {**facts["device"]["bottleneck"], "name": bound}
        told = {**facts, "device": {**facts["device"], "bottleneck": bottleneck}}
        found[row.folder.name] = {"facts": told, "seconds": 1.0, "said": ""}
    results = tmp_path / "results.json"
    results.write_text(json.dumps(found))
    assert judge(results) is (named == "memory")
    assert ("| NO |" in capsys.readouterr().out) is (named == "latency")
