import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from inferproof.campaign.candidates import CandidateStore
from inferproof.core.candidate import Manifest
from inferproof.core.canonical import digest_bytes, digest_json
from inferproof.core.errors import (
    FileFormatError,
    InfrastructureError,
    NotFound,
    SealBroken,
    UsageError,
)


@pytest.fixture
def store(tmp_path: Path) -> CandidateStore:
    return CandidateStore(tmp_path / "state")


def test_a_candidate_is_its_manifest_and_its_files(
    store: CandidateStore, candidate_folder: Path
) -> None:
    candidate = store.add(candidate_folder)
    assert list(candidate.files) == ["candidate.yaml", "include/norm.h", "kernel.cpp"]
    assert candidate.files["include/norm.h"] == digest_bytes(b"#pragma once\n")
    manifest = candidate.manifest.model_dump(mode="json")
    assert candidate.digest == digest_json({"manifest": manifest, "files": candidate.files})
    assert store.get(candidate.digest) == candidate
    assert store.contents(candidate.digest)["kernel.cpp"] == b'#include "include/norm.h"\n'


def test_the_same_content_is_stored_once(store: CandidateStore, candidate_folder: Path) -> None:
    first = store.add(candidate_folder)
    (candidate_folder / "__pycache__").mkdir()
    (candidate_folder / "__pycache__" / "x.pyc").write_bytes(b"x")
    (candidate_folder / ".git").mkdir()
    assert store.add(candidate_folder) == first
    (candidate_folder / "kernel.cpp").write_text("// other\n")
    second = store.add(candidate_folder)
    assert second.digest != first.digest
    assert store.list() == tuple(sorted([first.digest, second.digest]))


def test_many_may_store_the_same_content_at_once(
    store: CandidateStore, candidate_folder: Path
) -> None:
    for index in range(40):
        (candidate_folder / f"table{index}.h").write_text("// 0\n")
    barrier = Barrier(4)

    def add() -> str:
        barrier.wait(timeout=10)
        return store.add(candidate_folder).digest

    with ThreadPoolExecutor(4) as pool:
        found = {future.result() for future in [pool.submit(add) for _ in range(4)]}
    assert tuple(found) == store.list()
    assert [path.name for path in store.path("").iterdir()] == list(store.list())


def test_a_snapshot_does_not_follow_its_source(
    store: CandidateStore, candidate_folder: Path
) -> None:
    candidate = store.add(candidate_folder)
    (candidate_folder / "kernel.cpp").write_text("// changed after the commit\n")
    assert store.get(candidate.digest) == candidate
    assert (store.path(candidate.digest) / "kernel.cpp").stat().st_mode & 0o222 == 0


@pytest.mark.parametrize("damage", ["edit", "add", "remove", "link", "manifest"])
def test_a_changed_snapshot_is_refused(
    store: CandidateStore, candidate_folder: Path, damage: str
) -> None:
    digest = store.add(candidate_folder).digest
    stored = store.path(digest) / "kernel.cpp"
    stored.chmod(0o644)
    match damage:
        case "edit":
            stored.write_text("// swapped\n")
        case "add":
            (stored.parent / "extra.h").write_text("")
        case "remove":
            stored.unlink()
        case "link":
            stored.unlink()
            stored.symlink_to(candidate_folder / "kernel.cpp")
        case _:
            (stored.parent / "candidate.yaml").chmod(0o644)
            (stored.parent / "candidate.yaml").write_text("{")
    for look_up in (store.get, store.contents):
        with pytest.raises(SealBroken, match="digest_mismatch"):
            look_up(digest)
    with pytest.raises(SealBroken, match="digest_mismatch"):
        store.add(candidate_folder)


def test_candidates_are_found_by_their_first_digits(
    store: CandidateStore, candidate_folder: Path
) -> None:
    digest = store.add(candidate_folder).digest
    assert store.get(digest[:8]).digest == digest
    for short in ("", digest[:7], "../../etc", digest.upper()[:8] + "G", digest + "0"):
        with pytest.raises(UsageError, match="no candidate digest"):
            store.find(short)
    unknown = "0" * 8 if not digest.startswith("0" * 8) else "1" * 8
    with pytest.raises(NotFound, match=digest[:12]):
        store.find(unknown)


def test_an_ambiguous_prefix_is_refused(store: CandidateStore, tmp_path: Path) -> None:
    for last in "12":
        (tmp_path / "state" / "candidates" / ("a" * 63 + last)).mkdir(parents=True)
    with pytest.raises(UsageError, match="fits 2 candidates"):
        store.find("a" * 10)


def test_a_parent_must_be_stored(store: CandidateStore, candidate_folder: Path) -> None:
    parent = store.add(candidate_folder).digest
    manifest = candidate_folder / "candidate.yaml"
    text = manifest.read_text()
    manifest.write_text(f"{text}parent: '{'0' * 64}'\n")
    with pytest.raises(NotFound, match="parent 0000"):
        store.add(candidate_folder)
    manifest.write_text(f"{text}parent: '{parent}'\n")
    assert store.add(candidate_folder).manifest.parent == parent


def engine_of(folder: Path, kernels: dict[str, str], *files: Path) -> Path:
    """Return an engine's folder that names these kernels and holds these files."""
    folder.mkdir()
    (folder / "engine.py").write_text("print()\n")
    for file in files:
        (folder / file.name).write_bytes(file.read_bytes())
    start = '["{python}", "{candidate}/engine.py", "{port}"]'
    text = f"contract: completions\nengine: command\nstart: {start}\nkernels: {kernels}\n"
    (folder / "candidate.yaml").write_text(text.replace("'", '"'))
    return folder


def test_an_engine_names_only_kernels_that_it_holds(
    store: CandidateStore, candidate_folder: Path, tmp_path: Path
) -> None:
    kernel = store.add(candidate_folder)
    contract = kernel.kernel.contract
    files = [candidate_folder / "kernel.cpp", candidate_folder / "include" / "norm.h"]
    engine = store.add(engine_of(tmp_path / "whole", {contract: kernel.digest}, *files))
    assert engine.engine.kernels == {contract: kernel.digest}
    with pytest.raises(UsageError, match=r"include/norm\.h of .* is not in this folder"):
        store.add(engine_of(tmp_path / "part", {contract: kernel.digest}, files[0]))
    with pytest.raises(UsageError, match=f"is for {contract}, not other"):
        store.add(engine_of(tmp_path / "other", {"other": kernel.digest}, *files))
    with pytest.raises(NotFound):
        store.add(engine_of(tmp_path / "none", {contract: "0" * 64}, *files))


def _bind_socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # the path of a socket has at most 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("bad")
    finally:
        os.chdir(here)


def _fill(folder: Path, *, files: int, size_bytes: int) -> None:
    for index in range(files):
        (folder / f"part{index}").write_bytes(bytes(size_bytes))


def _name_in_bytes(folder: Path) -> None:
    Path(os.fsdecode(bytes(folder) + b"/\xff")).touch()


SPOILS: dict[str, tuple[Callable[[Path], object], str]] = {
    "symlink": (lambda f: (f / "bad").symlink_to(f / "kernel.cpp"), "bad: symbolic links"),
    "folder symlink": (lambda f: (f / "bad").symlink_to(f / "include"), "bad: symbolic links"),
    "dangling symlink": (lambda f: (f / "bad").symlink_to("nowhere"), "bad: symbolic links"),
    "fifo": (lambda f: os.mkfifo(f / "bad"), "bad: not a regular file"),
    "socket": (_bind_socket, "bad: cannot be read"),
    "hidden": (lambda f: (f / ".hidden").touch(), r"\.hidden: hidden files are refused"),
    "hidden folder": (lambda f: (f / ".cache").mkdir(), r"\.cache: hidden files are refused"),
    "option name": (lambda f: (f / "-o").touch(), "file name '-o' is refused"),
    "odd name": (lambda f: (f / "a\nb").touch(), r"file name 'a\\nb' is refused"),
    "name in bytes": (_name_in_bytes, "is refused"),
    "long name": (lambda f: (f / ("n" * 201)).touch(), "longer than 100"),
    "large": (lambda f: _fill(f, files=1, size_bytes=(16 << 20) + 1), "larger than 16384 KiB"),
    "large together": (lambda f: _fill(f, files=5, size_bytes=4 << 20), "more than 16 MiB"),
    "many": (lambda f: _fill(f, files=501, size_bytes=0), "more than 500 files"),
    "deep": (lambda f: f.joinpath(*"abcdefghi").mkdir(parents=True), "nested more than 8 deep"),
}


@pytest.mark.parametrize("kind", SPOILS)
def test_only_plain_files_become_candidates(
    store: CandidateStore, candidate_folder: Path, kind: str
) -> None:
    spoil, says = SPOILS[kind]
    spoil(candidate_folder)
    with pytest.raises(FileFormatError, match=says):
        store.add(candidate_folder)
    assert store.list() == ()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("source: kernel.cpp", "source: other.cpp", r"candidate.yaml:3: source: there is no file"),
        ("source: kernel.cpp", "source: ../kernel.cpp", r"candidate.yaml:3: source"),
        ("source: kernel.cpp", "source: /etc/passwd", r"candidate.yaml:3: source"),
        ("language: cpp", "language: rust", r"candidate.yaml:2: language"),
        ("[-g]", '["-g -o /etc/x"]', r"candidate.yaml:5: flags\[0\]"),
        ("[-g]", "[-fplugin=/x.so]", r"candidate.yaml:5: flags\[0\]"),
        ("[-g]", "[-fplugin=x.so]", r"candidate.yaml:5: flags\[0\].*loads code or changes paths"),
        ("[-g]", "[-specs=x]", r"loads code or changes paths"),
        ("[-g]", "[-B.]", r"loads code or changes paths"),
        ("[-g]", '["-wrapper"]', r"loads code or changes paths"),
        ("[-g]", "[-g]\nprepare: rms_norm", r"cannot be the `entry` that is timed"),
        ("entry: rms_norm", "entry: a(b)", r"candidate.yaml:4: entry"),
        ("entry:", "entri:", r"candidate.yaml:4: entri: unknown key; did you mean 'entry'"),
    ],
)
def test_manifests_are_parsed_strictly(
    store: CandidateStore, candidate_folder: Path, old: str, new: str, says: str
) -> None:
    manifest = candidate_folder / "candidate.yaml"
    manifest.write_text(manifest.read_text().replace(old, new, 1))
    with pytest.raises(FileFormatError, match=says):
        store.add(candidate_folder)


def test_flags_that_tune_are_taken(store: CandidateStore, candidate_folder: Path) -> None:
    manifest = candidate_folder / "candidate.yaml"
    flags = "[-g, -O2, -Ofast, -funroll-loops, -mavx512f, -fopenmp, -lm, -Iinclude, -DBLOCK=8]"
    manifest.write_text(manifest.read_text().replace("[-g]", flags, 1))
    taken = store.add(candidate_folder).manifest
    assert isinstance(taken, Manifest)
    assert len(taken.flags) == 9


def test_a_folder_without_a_manifest_is_refused(store: CandidateStore, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "missing"):
        with pytest.raises(FileFormatError, match="no such file"):
            store.add(tmp_path / folder)


def test_a_store_that_cannot_be_written_blames_the_machine(
    candidate_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file is in the way")
    with pytest.raises(InfrastructureError, match="cannot store candidate"):
        CandidateStore(tmp_path / "state").add(candidate_folder)


def test_half_written_snapshots_do_not_count(
    store: CandidateStore, candidate_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "state" / "candidates" / ".new-killed").mkdir(parents=True)
    digest = store.add(candidate_folder).digest
    assert store.list() == (digest,)
