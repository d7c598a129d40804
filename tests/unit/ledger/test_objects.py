"""The object store: what is read is what was stored."""

import hashlib
import os
from pathlib import Path

import pytest

from inferproof.core.errors import LedgerError
from inferproof.ledger.objects import ObjectStore


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


def test_an_object_is_named_by_its_sha256_and_read_only(store: ObjectStore) -> None:
    digest = store.put_bytes(b"data")
    assert digest == hashlib.sha256(b"data").hexdigest()
    assert store.get(digest) == b"data"
    assert store.path(digest).stat().st_mode & 0o777 == 0o444


def test_a_file_is_stored_as_its_bytes(store: ObjectStore, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(os.urandom(3_000_000))
    assert store.get(store.put_file(source)) == source.read_bytes()
    assert store.put_file(source) == store.put_bytes(source.read_bytes())


def test_nothing_but_objects_is_left_behind(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"data")
    store.put_bytes(b"data")
    store.put_file(tmp_path / "f")
    assert len([path for path in store.root.rglob("*") if path.is_file()]) == 1


def test_a_flipped_bit_is_detected_and_the_digest_named(store: ObjectStore) -> None:
    digest = store.put_bytes(b"data")
    path = store.path(digest)
    path.chmod(0o644)
    path.write_bytes(b"dat`")
    with pytest.raises(LedgerError, match=digest):
        store.get(digest)
    with pytest.raises(LedgerError, match=digest):
        store.check(digest)


def test_storing_the_right_bytes_again_mends_a_damaged_object(store: ObjectStore) -> None:
    digest = store.put_bytes(b"data")
    store.path(digest).chmod(0o644)
    store.path(digest).write_bytes(b"")
    store.put_bytes(b"data")
    assert store.get(digest) == b"data"


def test_a_missing_object_is_a_clear_error(store: ObjectStore) -> None:
    with pytest.raises(LedgerError, match="cannot be read: No such file"):
        store.get("0" * 64)


def test_a_name_that_is_no_digest_never_reaches_the_disk(store: ObjectStore) -> None:
    with pytest.raises(LedgerError, match="not a digest"):
        store.path("../../etc/passwd")


def test_links_devices_and_pipes_are_not_stored(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(LedgerError):
            store.put_file(tmp_path / name)
