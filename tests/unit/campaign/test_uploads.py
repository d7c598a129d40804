"""What an agent uploads becomes plain files in one folder, or nothing."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from inferproof.campaign import uploads
from inferproof.campaign.tree import read_tree
from inferproof.core.errors import FileFormatError, UsageError

FILES = {"candidate.yaml": b"contract: x\n", "src/kernel.cpp": b"int x;\n", "empty": b""}


def tar_of(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry, data in entries:
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def entry(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(data), "/etc/passwd"
    return info, data


def test_what_is_packed_comes_out_the_same(tmp_path: Path):
    uploads.unpack(uploads.packed(FILES), tmp_path)
    found = {
        str(p.relative_to(tmp_path)): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()
    }
    assert found == FILES


def test_the_largest_candidate_that_is_allowed_fits(tmp_path: Path):
    whole = {f"f{number}": b"" for number in range(uploads.LIMITS.files - 1)}
    whole["large"] = bytes(uploads.LIMITS.size_bytes)
    data = uploads.packed(whole)
    assert len(data) <= uploads.MOST_BYTES
    uploads.unpack(data, tmp_path)


KINDS: dict[str, bytes] = {
    "symbolic link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
    "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE,
    "pipe": tarfile.FIFOTYPE,
    "folder": tarfile.DIRTYPE,
    "sparse file": tarfile.GNUTYPE_SPARSE,
    "contiguous file": tarfile.CONTTYPE,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_only_plain_files_are_taken(tmp_path: Path, kind: bytes):
    with pytest.raises(UsageError):
        uploads.unpack(tar_of(entry("x", kind=kind)), tmp_path)
    assert not any(path.is_symlink() or path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("name", ["\u00e9", "x" * 300])
def test_a_name_that_no_plain_tar_holds_is_what_is_wrong(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match="a name that is too long or not plain"):
        uploads.unpack(tar_of(entry(name)), tmp_path)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a/../x", ".."])
def test_no_name_leads_outside(tmp_path: Path, name: str):
    folder = tmp_path / "inside"
    folder.mkdir()
    with pytest.raises(UsageError, match="leads outside"):
        uploads.unpack(tar_of(entry(name, b"x")), folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["inside"]


@pytest.mark.parametrize("names", [("a", "a"), ("a", "./a"), ("a", "a/b"), ("a/b", "a")])
def test_no_file_comes_twice_or_below_another(tmp_path: Path, names: tuple[str, str]):
    with pytest.raises(UsageError, match="twice, or one below another"):
        uploads.unpack(tar_of(*(entry(name, b"x") for name in names)), tmp_path)


TOO_MUCH: dict[str, Callable[[], bytes]] = {
    "files": lambda: uploads.packed({f"f{n}": b"" for n in range(uploads.LIMITS.files + 1)}),
    "bytes": lambda: uploads.packed({"a": bytes(uploads.LIMITS.size_bytes), "b": b"x"}),
}


@pytest.mark.parametrize("make", TOO_MUCH.values(), ids=TOO_MUCH)
def test_more_than_a_candidate_may_hold_is_refused(tmp_path: Path, make: Callable[[], bytes]):
    with pytest.raises(UsageError, match="larger than 500 files of 16 MiB"):
        uploads.unpack(make(), tmp_path)


def test_every_file_that_a_folder_may_have_can_be_packed(tmp_path: Path):
    names = ["f" * 100, "d" * 100 + "/" + "f" * 54, "d" * 54 + "/" + "f" * 100]
    names.append("/".join([*"abcdefg", "h" * 100, "i" * 40]))
    for name in names:
        path = tmp_path / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    found = read_tree(tmp_path / "from")
    (tmp_path / "to").mkdir()
    uploads.unpack(uploads.packed(found), tmp_path / "to")
    assert read_tree(tmp_path / "to") == found


@pytest.mark.parametrize("name", ["f" * 101, "d" * 100 + "/" + "f" * 55])
def test_a_name_that_cannot_be_packed_is_refused_by_its_folder(tmp_path: Path, name: str):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    with pytest.raises(FileFormatError, match="is longer than"):
        read_tree(tmp_path)


def nested(kind: bytes, depth: int) -> bytes:
    record = b"9 path=a\n"
    return tar_of(*[entry("x", record, kind)] * depth, entry("a", b"x"))


ODD = {
    "a name of 300 bytes": tar_of(entry("f" * 300, b"x")),
    "a long path of short names": tar_of(entry("/".join(["d" * 50] * 60), b"x")),
    "nested headers": nested(tarfile.XHDTYPE, 2000),
    "nested headers of old": nested(tarfile.GNUTYPE_LONGNAME, 2000),
    "a header for all": nested(tarfile.XGLTYPE, 1),
    "a name in no encoding": tarfile.TarInfo("\udcff").tobuf(tarfile.USTAR_FORMAT) + bytes(1024),
}


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_names_that_only_extensions_can_say_are_refused(tmp_path: Path, data: bytes):
    with pytest.raises(UsageError, match="the upload"):
        uploads.unpack(data, tmp_path)
    assert list(tmp_path.iterdir()) == []


DAMAGED = {
    "no tar": b"hello" * 300,
    "empty": b"",
    "no end": tar_of(entry("a", b"x"))[:1024],
    "cut": tar_of(entry("a", bytes(4096)))[:2000],
    "compressed": gzip.compress(tar_of(entry("a", b"x"))),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_what_is_no_whole_plain_tar_is_refused(tmp_path: Path, data: bytes):
    with pytest.raises(UsageError, match="no whole tar"):
        uploads.unpack(data, tmp_path)
