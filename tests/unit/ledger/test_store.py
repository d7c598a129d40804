"""The store: what append returned stays, what a dead writer left is cut off and recorded."""

import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from inferproof.core.canonical import Json
from inferproof.core.errors import LedgerError
from inferproof.ledger.bodies import kind_of
from inferproof.ledger.chain import GENESIS, check_chain
from inferproof.ledger.lock import exclusive
from inferproof.ledger.store import ENTRY_LIMIT_BYTES, Ledger
from unit.ledger.worlds import note

Body = dict[str, Json]


def outcome(job_id: str) -> Body:
    return {
        "kind": "outcome",
        "job_id": job_id,
        "status": "lost",
        "evidence": None,
        "verdicts": [],
        "overall": None,
        "failure": "",
    }


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path)


def texts(ledger: Ledger) -> list[object]:
    return [entry.body.get("text") for entry in ledger.entries("note")]


def test_an_appended_entry_is_on_disk_chained_and_signed(ledger: Ledger, tmp_path: Path) -> None:
    assert ledger.head == GENESIS
    first, second = ledger.append(note("a")), ledger.append(note("b"))
    assert (first.seq, first.prev, second.seq, second.prev) == (0, GENESIS, 1, first.digest)
    again = Ledger.open(tmp_path)
    assert (again.head, len(again)) == (second.digest, 2)
    assert check_chain(again.entries(), again.keeper_public_key, second.digest) == []
    assert again.entry(1) == second


def test_two_ledgers_of_one_folder_see_each_other(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger.open(tmp_path)
    ledger.append(note("a"))
    other.append(note("b"))
    ledger.append(note("c"))
    assert texts(ledger) == texts(other) == ["a", "b", "c"]


def test_entries_of_several_kinds_come_in_order(ledger: Ledger) -> None:
    ledger.append(note("a"))
    ledger.append(outcome("j"))
    ledger.append(note("b"))
    assert [kind_of(e) for e in ledger.entries()] == ["note", "outcome", "note"]
    assert [e.seq for e in ledger.entries(("outcome", "note"))] == [0, 1, 2]
    assert [e.seq for e in ledger.entries("note")] == [0, 2]
    with pytest.raises(LedgerError, match="no entry 3"):
        ledger.entry(3)


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "surprise"},
        {},
        {"kind": "note", "text": "a", "author": "agent"},
        {"kind": "note", "text": "a", "author": "person", "more": 1},
    ],
)
def test_a_body_of_unknown_form_never_enters_the_chain(ledger: Ledger, body: Body) -> None:
    with pytest.raises(LedgerError, match="is not a ledger entry"):
        ledger.append(body)
    assert not ledger.path.exists()


def test_a_job_has_one_outcome(ledger: Ledger, tmp_path: Path) -> None:
    first = ledger.append_outcome_once("j", outcome("j"))
    assert Ledger.open(tmp_path).append_outcome_once("j", outcome("j")) == first
    assert ledger.outcome_of("j") == first
    assert ledger.outcome_of("k") is None
    assert len(ledger) == 1
    with pytest.raises(LedgerError, match="not the outcome of job k"):
        ledger.append_outcome_once("k", outcome("j"))


def test_append_if_decides_on_the_ledger_as_it_is_under_the_lock(
    ledger: Ledger, tmp_path: Path
) -> None:
    def first_only(locked: Ledger) -> Body | None:
        return None if len(locked) else note("first")

    assert ledger.append_if(first_only) is not None
    assert Ledger.open(tmp_path).append_if(first_only) is None
    assert texts(ledger) == ["first"]


def test_threads_of_one_server_append_one_chain(ledger: Ledger) -> None:
    def append_ten(name: str) -> None:
        for number in range(10):
            ledger.append(note(f"{name}.{number}"))

    threads = [threading.Thread(target=append_ten, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger) == 40
    assert check_chain(ledger.entries(), ledger.keeper_public_key, ledger.head) == []


def test_a_ledger_held_too_long_is_an_error_that_names_the_holder(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path, lock_timeout_s=0.05)
    with (
        exclusive(tmp_path / "ledger.lock", timeout_s=1),
        pytest.raises(LedgerError, match=r"was held for 0.05 s by process \d+"),
    ):
        ledger.append(note("a"))
    ledger.append(note("a"))


def test_every_torn_tail_is_cut_off_kept_and_recorded(tmp_path: Path) -> None:
    whole = Ledger.open(tmp_path)
    whole.append(note("kept"))
    committed = whole.path.read_bytes()
    whole.append(note("torn"))
    torn = whole.path.read_bytes()[len(committed) : -1]
    for size in range(1, len(torn), 7):
        whole.path.write_bytes(committed + torn[:size])
        ledger = Ledger.open(tmp_path)
        assert texts(ledger) == ["kept"]
        ledger.append(note("next"))
        kept, repair, following = ledger.entries()
        assert (kept.body["text"], following.body["text"]) == ("kept", "next")
        assert repair.body["kind"] == "repair"
        assert repair.body["torn_bytes"] == size
        assert ledger.objects.get(str(repair.body["digest_of_torn_tail"])) == torn[:size]
        assert check_chain(ledger.entries(), ledger.keeper_public_key, following.digest) == []


def test_a_last_line_that_lacks_only_its_newline_is_kept(ledger: Ledger, tmp_path: Path) -> None:
    ledger.append(note("a"))
    last = ledger.append(note("b"))
    ledger.path.write_bytes(ledger.path.read_bytes()[:-1])
    again = Ledger.open(tmp_path)
    again.append(note("c"))
    assert texts(again) == ["a", "b", "c"]
    assert again.entry(1) == last


def test_an_unparsable_last_line_is_cut_off_and_recorded(ledger: Ledger, tmp_path: Path) -> None:
    ledger.append(note("a"))
    with ledger.path.open("ab") as file:
        file.write(b"\0" * 50 + b"\n")
    again = Ledger.open(tmp_path)
    again.append(note("b"))
    assert [kind_of(entry) for entry in again.entries()] == ["note", "repair", "note"]


def damaged_line(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b"rubbish\n", lines[2]]


def blank_line(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b"\n", lines[2]]


def changed_line(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b"person", b"parson"), lines[2]]


def dropped_line(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2]]


def dropped_first_line(lines: list[bytes]) -> list[bytes]:
    return lines[1:]


def changed_last_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[2].replace(b"person", b"parson")]


def spaced_last_line(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[2].replace(b'"author":', b'"author": ')]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damaged_line, "line 2 .* is not a ledger entry"),
        (blank_line, "line 2 .* is not a ledger entry"),
        (changed_line, "line 2 .* does not match its digest"),
        (dropped_line, "line 2 .* does not follow"),
        (dropped_first_line, "line 1 .* does not follow"),
        (changed_last_line, "line 3 .* does not match its digest"),
        (spaced_last_line, "line 3 .* does not match its digest"),
    ],
)
def test_damage_is_never_repaired(
    ledger: Ledger,
    tmp_path: Path,
    damage: Callable[[list[bytes]], list[bytes]],
    message: str,
) -> None:
    for text in "abc":
        ledger.append(note(text))
    damaged = b"".join(damage(ledger.path.read_bytes().splitlines(keepends=True)))
    ledger.path.write_bytes(damaged)
    again = Ledger.open(tmp_path)
    with pytest.raises(LedgerError, match=message):
        again.append(note("d"))
    assert ledger.path.read_bytes() == damaged


@pytest.mark.parametrize("replaced", [True, False])
def test_a_running_server_notices_that_its_ledger_lost_entries(
    ledger: Ledger, replaced: bool
) -> None:
    for text in "abc":
        ledger.append(note(text))
    shorter = b"".join(ledger.path.read_bytes().splitlines(keepends=True)[:2])
    if replaced:
        ledger.path.unlink()
    ledger.path.write_bytes(shorter)
    for _ in range(2):
        with pytest.raises(LedgerError, match="no longer holds entry 2"):
            ledger.append(note("d"))
    ledger.path.unlink()
    with pytest.raises(LedgerError, match="no longer holds entry 2"):
        _ = ledger.head


def test_an_entry_that_changes_in_place_is_noticed_when_read(ledger: Ledger) -> None:
    ledger.append(note("a"))
    first = ledger.path.read_bytes()
    digest = ledger.head.encode()
    ledger.path.write_bytes(first.replace(digest, digest[::-1]))
    with pytest.raises(LedgerError, match="changed under a running server"):
        ledger.entry(0)


def test_a_ledger_signed_by_another_key_is_not_continued(ledger: Ledger, tmp_path: Path) -> None:
    ledger.append(note("a"))
    key = tmp_path / "keeper.key"
    key.write_text("11" * 32)
    with pytest.raises(LedgerError, match="entry 0 is not signed by"):
        Ledger.open(tmp_path).append(note("b"))
    key.unlink()
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger.open(tmp_path).append(note("b"))
    assert not key.exists()


def test_an_oversized_entry_is_refused_and_leaves_nothing(ledger: Ledger) -> None:
    ledger.append(note("a"))
    body = outcome("j") | {"failure": "x" * ENTRY_LIMIT_BYTES}
    with pytest.raises(LedgerError, match="more than"):
        ledger.append(body)
    assert len(ledger) == 1


def test_a_write_that_stops_half_way_is_a_clear_error_and_the_ledger_stays_whole(
    ledger: Ledger,
) -> None:
    ledger.append(note("a"))
    before = ledger.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(LedgerError, match="cannot be written: File too large"):
            ledger.append(note("b"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ledger.path.read_bytes() == before
    ledger.append(note("b"))
    assert texts(ledger) == ["a", "b"]


def test_a_path_that_is_a_link_is_not_followed(ledger: Ledger, tmp_path: Path) -> None:
    for name in ("ledger.lock", "ledger.jsonl"):
        (tmp_path / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(LedgerError, match=f"{name} cannot be"):
            ledger.append(note("a"))
        (tmp_path / name).unlink()
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_without_state_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="inferproof init"):
        Ledger.open(tmp_path / "none")


def test_a_ledger_that_cannot_be_read_is_a_clear_error(ledger: Ledger) -> None:
    ledger.path.mkdir()
    with pytest.raises(LedgerError, match="cannot be read: Is a directory"):
        ledger.append(note("a"))
