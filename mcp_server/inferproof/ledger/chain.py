"""The chain as pure values: make an entry, write it as a line, read it back, check a sequence.

A chain proves order only against a head that someone else holds: whoever has the keeper's key and
the file can write another chain that is just as consistent. Checked against a head kept elsewhere,
no entry up to that head can have been changed, dropped or moved.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import NoReturn, TypeAlias

from inferproof.core.canonical import Json, canonical_bytes, digest_bytes
from inferproof.core.errors import LedgerError
from inferproof.core.values import Digest, Entry, Value
from inferproof.ledger.bodies import json_body, kind_of
from inferproof.ledger.signing import verifier

GENESIS = "0" * 64
Sign: TypeAlias = Callable[[bytes], str]
_LINE = re.compile(
    rb'(?P<head>\{"at":"(?P<at>[0-9T:.Z-]{20,27})","body":(?P<body>\{.*\})),'
    rb'"digest":"(?P<digest>[0-9a-f]{64})",'
    rb'(?P<tail>"prev":"(?P<prev>[0-9a-f]{64})","seq":(?P<seq>[0-9]{1,15})),'
    rb'"sig":"(?P<sig>[0-9a-f]{128})"\}\n?'
)


class Severity(StrEnum):
    """What a finding means for trust; only `altered` breaks it."""

    ALTERED = "altered"
    OLDER_GATE = "older_gate"
    NOTICE = "notice"


class Finding(Value):
    """One thing that a reader of the record must know, and the entry that it is about."""

    seq: int | None
    kind: str
    what: str
    severity: Severity

    def __str__(self) -> str:
        where = "ledger" if self.seq is None else f"entry {self.seq} ({self.kind})"
        return f"{where}: {self.what} [{self.severity}]"


def altered(entry: Entry, what: str) -> Finding:
    """Return the finding that `entry` cannot be believed."""
    return _finding(entry, what, Severity.ALTERED)


def notice(entry: Entry, what: str) -> Finding:
    """Return something worth knowing about `entry` that breaks no trust."""
    return _finding(entry, what, Severity.NOTICE)


def older_gate(entry: Entry, what: str) -> Finding:
    """Return that a verdict in `entry` was not made by the present gate."""
    return _finding(entry, what, Severity.OLDER_GATE)


def make_entry(
    *, prev: Digest, seq: int, at: datetime, body: Mapping[str, Json], sign: Sign
) -> Entry:
    """Return the signed entry that follows `prev`.

    Raises:
        LedgerError: the body has no canonical form (NaN, infinity, lone surrogates).
    """
    try:
        stored = canonical_bytes(body)
    except ValueError as exc:
        raise LedgerError(f"the body of entry {seq} is not plain JSON: {exc}") from exc
    at = at.astimezone(UTC)
    digest = digest_bytes(_payload(stored, at=at, prev=prev, seq=seq))
    sig = sign(bytes.fromhex(digest))
    return Entry(seq=seq, prev=prev, at=at, body=json.loads(stored), digest=digest, sig=sig)


def entry_bytes(entry: Entry) -> bytes:
    """Return the entry's one line: canonical JSON and a newline."""
    return canonical_bytes(entry.model_dump(mode="json")) + b"\n"


def parse_line(line: bytes) -> Entry:
    """Return the entry that a line holds; its digest and signature are not checked here.

    Raises:
        LedgerError: the line is not an entry.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise LedgerError("the line is not a ledger entry")
    try:
        return Entry(
            seq=int(match["seq"]),
            prev=match["prev"].decode(),
            at=datetime.fromisoformat(match["at"].decode()),
            body=json.loads(match["body"], parse_constant=_refuse_constant),
            digest=match["digest"].decode(),
            sig=match["sig"].decode(),
        )
    except (ValueError, RecursionError) as exc:
        raise LedgerError("the line is not a ledger entry") from exc


def parse_exactly(line: bytes) -> Entry:
    """Return the entry of a line that is written as entries are, to the byte.

    Raises:
        LedgerError: the line is not an entry, or one in other bytes that read the same.
    """
    entry, match = parse_line(line), _LINE.fullmatch(line)
    try:
        written = _payload_of(entry)
    except (ValueError, RecursionError) as exc:
        raise LedgerError("the line is not a ledger entry") from exc
    if match is None or written != _signed_part(match):
        raise LedgerError("the line is not written as ledger entries are")
    return entry


def line_is_whole(line: bytes) -> bool:
    """Return whether the bytes of a line are those its digest names; cheap, no signature."""
    match = _LINE.fullmatch(line)
    if match is None:
        return False
    return digest_bytes(_signed_part(match)) == match["digest"].decode()


def check_chain(
    entries: Iterable[Entry], keeper_public_key: str, expected_head: Digest | None
) -> list[Finding]:
    """Return what is wrong with order, content, signatures and, if given, the expected head.

    Without `expected_head` a cut-off tail or a chain written anew with the keeper's key goes
    unseen: nothing inside the file can show it.
    """
    is_signed = verifier(keeper_public_key)
    findings: list[Finding] = []
    prev: Entry | None = None
    head_seen = expected_head in (None, GENESIS)
    for entry in entries:
        findings += _check_link(prev, entry)
        findings += _check_content(entry)
        if not is_signed(bytes.fromhex(entry.digest), entry.sig):
            findings.append(altered(entry, "not signed by the campaign's keeper key"))
        head_seen = head_seen or entry.digest == expected_head
        prev = entry
    if not head_seen:
        what = f"the expected head {expected_head} is not in the chain: rewritten or cut off"
        findings.append(Finding(seq=None, kind="chain", what=what, severity=Severity.ALTERED))
    return findings


def _check_link(prev: Entry | None, entry: Entry) -> Iterable[Finding]:
    expected_seq = 0 if prev is None else prev.seq + 1
    if entry.seq != expected_seq:
        yield altered(entry, f"stands where entry {expected_seq} should")
    if entry.prev != (GENESIS if prev is None else prev.digest):
        yield altered(entry, "does not follow from the entry before it")
    if prev is not None and entry.at < prev.at:
        yield notice(entry, f"is dated before entry {prev.seq}: the clock went back")


def _check_content(entry: Entry) -> Iterable[Finding]:
    try:
        payload = _payload_of(entry)
    except (ValueError, RecursionError):
        yield altered(entry, "its body is not plain JSON")
        return
    if digest_bytes(payload) != entry.digest:
        yield altered(entry, "its content does not match its digest")


def _signed_part(line: re.Match[bytes]) -> bytes:
    """Return what a line's digest is over."""
    return line["head"] + b"," + line["tail"] + b"}"


def _payload_of(entry: Entry) -> bytes:
    body = canonical_bytes(json_body(entry))
    return _payload(body, at=entry.at, prev=entry.prev, seq=entry.seq)


def _payload(body: bytes, *, at: datetime, prev: str, seq: int) -> bytes:
    stamp = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    rest = canonical_bytes({"prev": prev, "seq": seq})
    return b'{"at":"' + stamp.encode() + b'","body":' + body + b"," + rest[1:]


def _finding(entry: Entry, what: str, severity: Severity) -> Finding:
    return Finding(seq=entry.seq, kind=kind_of(entry), what=what, severity=severity)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
