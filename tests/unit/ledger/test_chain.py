"""The chain: canonical lines, and no edit that goes unseen by who holds the head."""

from datetime import UTC, datetime, timedelta, timezone
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferproof.core.canonical import canonical_bytes, digest_json
from inferproof.core.errors import LedgerError
from inferproof.core.values import Entry
from inferproof.ledger.chain import (
    GENESIS,
    Finding,
    Severity,
    check_chain,
    entry_bytes,
    line_is_whole,
    make_entry,
    parse_exactly,
    parse_line,
)
from inferproof.ledger.signing import KeeperKey
from inferproof.ledger.tail import is_complete

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)


@cache
def key() -> KeeperKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return KeeperKey(Ed25519PrivateKey.generate())


@cache
def chain(length: int = 8) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for seq in range(length):
        entry = make_entry(
            prev=entries[-1].digest if entries else GENESIS,
            seq=seq,
            at=NOW + timedelta(microseconds=seq * 10),
            body={"kind": "note", "text": f"Größe {seq}", "author": "person", "x": [1, 0.5, None]},
            sign=key().sign,
        )
        entries.append(entry)
    return tuple(entries)


def findings_in(data: bytes, head: str | None) -> list[Finding]:
    """Return what a reader of the bytes of a ledger finds; each unreadable line counts."""
    entries: list[Entry] = []
    unreadable: list[Finding] = []
    for number, line in enumerate(data.splitlines(keepends=True)):
        try:
            entries.append(parse_exactly(line if line.endswith(b"\n") else b""))
        except LedgerError:
            unreadable.append(
                Finding(seq=number, kind="line", what="unreadable", severity=Severity.ALTERED)
            )
    return [*unreadable, *check_chain(entries, key().public_key, head)]


DATA = b"".join(entry_bytes(entry) for entry in chain())
HEAD = chain()[-1].digest


def test_an_untouched_chain_has_no_findings() -> None:
    assert findings_in(DATA, HEAD) == []
    assert findings_in(DATA, chain()[3].digest) == []
    assert findings_in(b"", None) == []
    assert findings_in(b"", GENESIS) == []


def test_an_entry_is_one_canonical_line_that_reads_back_the_same() -> None:
    entry = chain()[1]
    line = entry_bytes(entry)
    assert line == canonical_bytes(entry.model_dump(mode="json")) + b"\n"
    assert parse_line(line) == entry
    assert line_is_whole(line)


def test_the_digest_is_over_the_canonical_json_of_seq_prev_at_body() -> None:
    for entry in chain():
        dumped = entry.model_dump(mode="json", include={"seq", "prev", "at", "body"})
        assert digest_json(dumped) == entry.digest


def test_an_entry_dated_in_another_zone_is_stored_in_utc() -> None:
    zone = timezone(timedelta(hours=2))
    at = datetime(2026, 1, 1, 14, 30, tzinfo=zone)
    entry = make_entry(prev=GENESIS, seq=0, at=at, body={"kind": "note"}, sign=key().sign)
    assert line_is_whole(entry_bytes(parse_line(entry_bytes(entry))))
    assert entry.at == NOW


@settings(deadline=None)
@given(position=st.integers(0, len(DATA) - 1), mask=st.integers(1, 255))
def test_any_changed_byte_is_detected(position: int, mask: int) -> None:
    data = bytearray(DATA)
    data[position] ^= mask
    assert findings_in(bytes(data), HEAD)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (b'"author":', b'"author": '),
        (b"0.5", b"0.50"),
        (b'"seq":1', b'"seq":01'),
        (b"000010Z", b"0000100Z"),
        ("Größe".encode(), b"Gr\\u00f6\\u00dfe"),
    ],
)
def test_the_same_entry_in_other_bytes_is_detected(own: bytes, other: bytes) -> None:
    lines = DATA.splitlines(keepends=True)
    assert own in lines[1]
    lines[1] = lines[1].replace(own, other, 1)
    assert findings_in(b"".join(lines), HEAD)


@settings(deadline=None)
@given(position=st.integers(0, len(DATA)), extra=st.binary(min_size=1, max_size=40))
def test_any_inserted_bytes_are_detected(position: int, extra: bytes) -> None:
    assert findings_in(DATA[:position] + extra + DATA[position:], HEAD)


@settings(deadline=None)
@given(start=st.integers(0, len(DATA) - 1), size=st.integers(1, 400))
def test_any_removed_bytes_are_detected(start: int, size: int) -> None:
    assert findings_in(DATA[:start] + DATA[start + size :], HEAD)


@settings(deadline=None)
@given(size=st.integers(0, len(DATA) - 1))
def test_any_truncation_is_detected_given_the_head(size: int) -> None:
    assert findings_in(DATA[:size], HEAD)


@settings(deadline=None)
@given(order=st.permutations(range(len(chain()))))
def test_any_other_order_is_detected(order: list[int]) -> None:
    data = b"".join(entry_bytes(chain()[index]) for index in order)
    assert bool(findings_in(data, HEAD)) == (order != sorted(order))


@settings(deadline=None)
@given(dropped=st.integers(0, len(chain()) - 1))
def test_any_dropped_entry_is_detected(dropped: int) -> None:
    rest = [entry for entry in chain() if entry.seq != dropped]
    assert findings_in(b"".join(map(entry_bytes, rest)), HEAD)


def test_an_altered_entry_is_named() -> None:
    entry = chain()[4]
    forged = entry.model_copy(update={"body": {**entry.body, "text": "something else"}})
    entries = [*chain()[:4], forged, *chain()[5:]]
    (finding,) = check_chain(entries, key().public_key, HEAD)
    assert (finding.seq, finding.kind, finding.severity) == (4, "note", Severity.ALTERED)
    assert "digest" in finding.what
    assert str(finding).startswith("entry 4 (note): ")


def test_a_body_that_is_not_canonical_is_altered_even_when_its_bytes_are_signed() -> None:
    entry = make_entry(prev=GENESIS, seq=0, at=NOW, body={"kind": "note"}, sign=key().sign)
    odd = entry.model_copy(update={"body": {"kind": "note", "x": float("inf")}})
    assert [f.what for f in check_chain([odd], key().public_key, None)] == [
        "its body is not plain JSON"
    ]


def test_an_entry_signed_by_another_key_is_altered() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    other = KeeperKey(Ed25519PrivateKey.generate())
    (finding, *rest) = check_chain(chain()[:1], other.public_key, None)
    assert "keeper key" in finding.what
    assert rest == []


def test_a_clock_that_went_back_is_a_notice() -> None:
    first = make_entry(prev=GENESIS, seq=0, at=NOW, body={"kind": "note"}, sign=key().sign)
    second = make_entry(
        prev=first.digest,
        seq=1,
        at=NOW - timedelta(hours=1),
        body={"kind": "note"},
        sign=key().sign,
    )
    (finding,) = check_chain([first, second], key().public_key, None)
    assert finding.severity is Severity.NOTICE


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_a_body_without_canonical_form_is_refused(value: float | str) -> None:
    with pytest.raises(LedgerError, match="not plain JSON"):
        make_entry(prev=GENESIS, seq=0, at=NOW, body={"kind": value}, sign=key().sign)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"kind":"note"', b'"kind":NaN'),
        (b'"kind":"note"', b'"kind":' + b"[" * 100_000 + b"]" * 100_000),
        (b'"kind":"note"', b'"kind":' + b"9" * 5000),
        (b'"at":"2026-01-01', b'"at":"2026-99-01'),
        (b'"body":{', b'"body":{},"body":{'),
        (b'"seq":', b'"seq":-'),
    ],
)
def test_a_line_that_only_looks_like_an_entry_is_a_clear_error(old: bytes, new: bytes) -> None:
    line = entry_bytes(chain()[0])
    with pytest.raises(LedgerError, match="not a ledger entry"):
        parse_line(line.replace(old, new))


def test_a_line_whose_bytes_changed_is_not_whole() -> None:
    line = entry_bytes(chain()[0])
    assert not line_is_whole(line.replace(b"person", b"parson"))
    assert not line_is_whole(b"{}\n")


def test_only_a_line_that_lacks_just_its_newline_is_complete() -> None:
    line = entry_bytes(chain()[0])
    assert is_complete(line[:-1])
    assert not is_complete(line[:-2])
    assert not is_complete(line)
