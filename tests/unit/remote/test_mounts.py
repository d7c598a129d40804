"""What a sandbox shows of the disk."""

import socket
import sys
from pathlib import Path, PurePosixPath

import pytest

from inferproof_remote.mounts import SandboxPlan, mount_arguments


def arguments(**changes: object) -> list[str]:
    plan = SandboxPlan(memory_mib=64, tmp_mib=3, processes=8)
    for name, value in changes.items():
        object.__setattr__(plan, name, value)
    return mount_arguments(plan)


def shown(given: list[str]) -> dict[str, str]:
    """Return path inside -> option, for every bind."""
    binds = [at for at, part in enumerate(given) if part in ("--bind", "--ro-bind")]
    return {given[at + 2]: given[at] for at in binds}


def test_root_and_home_are_never_bound() -> None:
    places = shown(arguments())
    assert not {"/", "/home", "/root", "/etc", "/tmp", "/var", "/run"} & places.keys()
    assert set(places.values()) == {"--ro-bind"}


def test_this_python_is_there() -> None:
    places = [Path(place) for place in shown(arguments())]
    for prefix in (sys.prefix, sys.base_prefix):
        assert any(Path(prefix).is_relative_to(place) for place in places)


def test_only_writable_folders_are_writable(tmp_path: Path) -> None:
    places = shown(arguments(read_only=(tmp_path / "in",), writable=(tmp_path / "out",)))
    assert places[str(tmp_path / "in")] == "--ro-bind"
    assert places[str(tmp_path / "out")] == "--bind"


def test_placed_path_hides_where_it_comes_from(tmp_path: Path) -> None:
    given = arguments(placed={PurePosixPath("/candidate"): tmp_path})
    at = given.index("/candidate", given.index(str(tmp_path)))
    assert given[at - 2 : at + 1] == ["--ro-bind", str(tmp_path), "/candidate"]


def test_parents_of_a_bind_are_made_readable(tmp_path: Path) -> None:
    given = arguments(read_only=(tmp_path,))
    for parent in tmp_path.parents[:-2]:
        at = given.index(str(parent))
        assert given[at - 3 : at] == ["--perms", "0755", "--dir"]


def test_every_writable_file_system_of_ours_ends_read_only_or_small() -> None:
    given = arguments()
    assert given[-2:] == ["--remount-ro", "/"]
    for place in ("/tmp", "/dev/shm"):
        at = given.index(place)
        assert given[at - 5 : at] == ["--perms", "1777", "--size", str(3 << 20), "--tmpfs"]
    assert given[given.index("/dev/shm") :].count("--remount-ro") >= 2


def test_masked_folder_and_file_appear_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    given = arguments(read_only=(tmp_path,), masked=(tmp_path / "file", tmp_path))
    assert given[given.index(str(tmp_path / "file")) - 2] == "--ro-bind"
    assert given[given.index(str(tmp_path / "file")) - 1] == "/dev/null"
    assert "--tmpfs" in given[given.index(str(tmp_path), given.index("/dev/null")) - 1 :]


def test_a_socket_in_a_shown_folder_is_masked_and_a_name_of_one_elsewhere_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a link leads to lies outside: there is nothing at its end in the sandbox."""
    shown_folder = tmp_path / "model"
    (shown_folder / "deep").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as there, socket.socket(socket.AF_UNIX) as elsewhere:
        monkeypatch.chdir(shown_folder / "deep")
        there.bind("s")
        monkeypatch.chdir(tmp_path)
        elsewhere.bind("s")
        (shown_folder / "link").symlink_to(tmp_path / "s")
        given = arguments(read_only=(shown_folder,))
    assert given[given.index(str(shown_folder / "deep" / "s")) - 1] == "/dev/null"
    assert str(shown_folder / "link") not in given
