"""Candidates that cheat are refused for the named reason; their honest twins are accepted."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import pytest
import yaml

from adversarial.zoo import HERE, KERNELS, Bench, Cheat, load_zoo
from inferproof.core.values import Outcome, Verdict

ZOO = load_zoo()
TWINS = tuple(sorted({(cheat.twin, cheat.wide) for cheat in ZOO}))
SMOKE = tuple(cheat for cheat in ZOO if cheat.smoke)
TOGETHER = 2
TABLE = HERE.parents[1] / "docs" / "cheats.md"


class Row(NamedTuple):
    """A candidate and the scale at which it is graded."""

    folder: str
    timing: bool = False
    one_shape: bool = False
    wide: bool = False

    @classmethod
    def of(cls, cheat: Cheat) -> "Row":
        return cls(cheat.folder, cheat.needs_timing, cheat.one_shape, cheat.wide)


class Rows:
    """Verdicts on candidates: of those known from the start two at a time, timed ones alone."""

    def __init__(self, folder: Path, known: Iterable[Row]) -> None:
        self._benches = SimpleQueue[Bench]()
        for number in range(TOGETHER):
            self._benches.put(Bench(folder / str(number)))
        self._pool = ThreadPoolExecutor(TOGETHER)
        untimed = [row for row in dict.fromkeys(known) if not row.timing]
        self._ahead = {row: self._pool.submit(self._graded, row) for row in untimed}

    def verdict(self, row: Row) -> Verdict:
        if row in self._ahead:
            return self._ahead[row].result()
        wait(self._ahead.values())
        return self._graded(row)

    def end(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _graded(self, row: Row) -> Verdict:
        bench = self._benches.get()
        try:
            return asyncio.run(
                bench.verdict(row.folder, timing=row.timing, one_shape=row.one_shape, wide=row.wide)
            )
        finally:
            self._benches.put(bench)


def asked(items: Iterable[pytest.Item]) -> Iterator[Row]:
    """Yield the rows that the selected tests of the whole zoo ask for, in their order."""
    for item in items:
        if not isinstance(item, pytest.Function) or not item.get_closest_marker("zoo"):
            continue
        match item.callspec.params if item.path == Path(__file__) else {}:
            case {"cheat": Cheat() as cheat}:
                yield Row.of(cheat)
            case {"folder": str(folder), "wide": bool(wide)}:
                yield Row(folder, wide=wide)
            case _:
                pass


@pytest.fixture(scope="module")
def rows(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rows]:
    rows = Rows(tmp_path_factory.mktemp("zoo"), asked(request.session.items))
    yield rows
    rows.end()


def is_refused(rows: Rows, cheat: Cheat) -> None:
    verdict = rows.verdict(Row.of(cheat))
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.code in cheat.expect, verdict


def is_accepted(rows: Rows, folder: str, *, wide: bool = False) -> None:
    verdict = rows.verdict(Row(folder, wide=wide))
    assert verdict.outcome is Outcome.PASS, verdict


@pytest.mark.parametrize("cheat", SMOKE, ids=lambda cheat: cheat.folder)
def test_a_common_cheat_is_refused(rows: Rows, cheat: Cheat) -> None:
    is_refused(rows, cheat)


@pytest.mark.parametrize("folder", [cheat.twin for cheat in SMOKE])
def test_the_twin_of_a_common_cheat_is_accepted(rows: Rows, folder: str) -> None:
    is_accepted(rows, folder)


@pytest.mark.zoo
@pytest.mark.timeout(900)
@pytest.mark.parametrize("cheat", ZOO, ids=lambda cheat: cheat.folder)
def test_a_cheat_is_refused_for_the_named_reason(rows: Rows, cheat: Cheat) -> None:
    is_refused(rows, cheat)


@pytest.mark.zoo
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("folder", "wide"), TWINS)
def test_an_honest_candidate_is_accepted(rows: Rows, folder: str, wide: bool) -> None:
    is_accepted(rows, folder, wide=wide)


def test_every_folder_is_a_row_or_a_twin() -> None:
    named = {cheat.folder for cheat in ZOO} | {twin for twin, _ in TWINS}
    assert named == {path.name for path in KERNELS.iterdir() if path.is_dir()}
    assert len(ZOO) == len({cheat.folder for cheat in ZOO})


def test_rows_name_the_language_of_their_manifest() -> None:
    for cheat in ZOO:
        assert language(KERNELS / cheat.folder) == cheat.language, cheat.folder


def test_the_zoo_is_as_large_as_promised() -> None:
    assert len(ZOO) >= 25
    assert len(TWINS) >= 25
    assert len(SMOKE) == 6


def test_the_table_of_cheats_names_every_row_and_no_other() -> None:
    cited = set(re.findall(r"`([trwhx][0-9]*-[a-z0-9-]+)`", TABLE.read_text(encoding="utf-8")))
    assert cited == {cheat.folder for cheat in ZOO}


def language(folder: Path) -> object:
    manifest = yaml.safe_load((folder / "candidate.yaml").read_text(encoding="utf-8"))
    return manifest["language"]
