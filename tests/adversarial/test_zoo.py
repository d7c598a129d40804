"""Candidates that cheat are refused for the named reason; their honest twins are accepted."""

import asyncio
import re
from pathlib import Path

import pytest
import yaml

from adversarial.zoo import HERE, KERNELS, Bench, Cheat, load_zoo
from inferproof.core.values import Outcome

ZOO = load_zoo()
TWINS = tuple(sorted({(cheat.twin, cheat.wide) for cheat in ZOO}))
SMOKE = tuple(cheat for cheat in ZOO if cheat.smoke)
TABLE = HERE.parents[1] / "docs" / "cheats.md"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("zoo"))


def is_refused(bench: Bench, cheat: Cheat) -> None:
    verdict = asyncio.run(
        bench.verdict(
            cheat.folder,
            timing=cheat.needs_timing,
            one_shape=cheat.one_shape,
            wide=cheat.wide,
        )
    )
    assert verdict.outcome is Outcome.FAIL, verdict
    assert verdict.code in cheat.expect, verdict


def is_accepted(bench: Bench, folder: str, *, wide: bool = False) -> None:
    verdict = asyncio.run(bench.verdict(folder, wide=wide))
    assert verdict.outcome is Outcome.PASS, verdict


@pytest.mark.parametrize("cheat", SMOKE, ids=lambda cheat: cheat.folder)
def test_a_common_cheat_is_refused(bench: Bench, cheat: Cheat) -> None:
    is_refused(bench, cheat)


@pytest.mark.parametrize("folder", [cheat.twin for cheat in SMOKE])
def test_the_twin_of_a_common_cheat_is_accepted(bench: Bench, folder: str) -> None:
    is_accepted(bench, folder)


@pytest.mark.zoo
@pytest.mark.timeout(400)
@pytest.mark.parametrize("cheat", ZOO, ids=lambda cheat: cheat.folder)
def test_a_cheat_is_refused_for_the_named_reason(bench: Bench, cheat: Cheat) -> None:
    is_refused(bench, cheat)


@pytest.mark.zoo
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("folder", "wide"), TWINS)
def test_an_honest_candidate_is_accepted(bench: Bench, folder: str, wide: bool) -> None:
    is_accepted(bench, folder, wide=wide)


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
