"""Control groups that are really made, where this machine lets us."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from inferproof_remote import cgroups
from inferproof_remote.benches import freezers
from inferproof_remote.cgroups import FreezerName
from inferproof_remote.freezers import group_freezer
from inferproof_remote.incidents import BenchError

MARK = f"unit-{os.getpid()}"


@pytest.fixture(params=freezers())
def freezer(request: pytest.FixtureRequest) -> FreezerName:
    name: FreezerName = request.param
    return name


@pytest.fixture
def sleeper() -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()


def ours() -> list[Path]:
    folders = cgroups.find().folders()
    return [path for folder in folders for path in folder.glob(f"{cgroups.PREFIX}{MARK}*")]


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a b", "x" * 200])
def test_name_that_is_no_group_name_is_refused(name: str) -> None:
    with pytest.raises(BenchError, match="cannot name"):
        cgroups.make(name, "sigstop")


def test_frozen_process_is_killed_with_its_groups(
    freezer: FreezerName, sleeper: subprocess.Popen[bytes]
) -> None:
    groups = cgroups.make(MARK, freezer)
    for group in set(groups.values()):
        group.write("cgroup.procs", str(sleeper.pid))
        assert group.pids() == {sleeper.pid}
    if "freezer" in groups:
        switch = group_freezer(freezer, groups["freezer"])
        switch.freeze()
        assert switch.is_frozen()
        switch.close()
    cgroups.remove(groups)
    assert ours() == []
    assert not groups or sleeper.wait(timeout=5) == -9


def test_same_name_twice_is_refused_and_leaves_the_first(freezer: FreezerName) -> None:
    groups = cgroups.make(MARK, freezer)
    before = ours()
    if groups:
        with pytest.raises(BenchError, match="cannot make"):
            cgroups.make(MARK, freezer)
    assert ours() == before
    cgroups.remove(groups)


def test_cleanup_takes_only_its_own_prefix(freezer: FreezerName) -> None:
    mine, other = (cgroups.make(f"{MARK}.{name}", freezer) for name in ("a", "b"))
    removed = cgroups.cleanup(f"{MARK}.a")
    assert removed == ((f"{MARK}.a",) if mine else ())
    assert {path.name for path in ours()} == {group.path.name for group in other.values()}
    cgroups.remove(other)


def test_counter_of_an_absent_key_is_zero(freezer: FreezerName) -> None:
    groups = cgroups.make(MARK, freezer)
    for group in groups.values():
        assert group.counter("pids.events", "nothing") == 0
        assert group.counter("no.such.file", "max") == 0
    cgroups.remove(groups)
