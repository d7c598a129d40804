"""Everything a third person can check about a ledger: chain, keys, seal, objects, verdicts.

What stays unseen: a chain written anew with the keeper's key, or cut off at its end, unless
`expected_head` comes from somebody the writer could not reach; and what a thief of the keeper's
key appends behind that head together with evidence that the gates accept.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from inferproof.core.errors import LedgerError, UsageError
from inferproof.core.values import Digest, Entry, Value
from inferproof.ledger.audit import Audit, Judge, Sources
from inferproof.ledger.chain import GENESIS, Finding, Severity, altered, check_chain, parse_exactly
from inferproof.ledger.objects import ObjectStore
from inferproof.ledger.seals import SealHistory, broken_files, read_seals
from inferproof.ledger.signing import KeeperKey

_NOBODY = "0" * 64


class Report(Value):
    """What `verify` found, in ledger order. `ok` is false as soon as one finding says altered."""

    ok: bool
    entries: int
    head: Digest
    findings: tuple[Finding, ...]


def verify(
    state_dir: Path,
    campaign_dir: Path,
    *,
    judge: Judge,
    expected_head: Digest | None = None,
    approval_required: bool = True,
) -> Report:
    """Return what is wrong with the ledger in `state_dir`; nothing is repaired or written.

    Raises:
        UsageError: `expected_head` is not a digest.
        LedgerError: there is no ledger file, or it cannot be read.
    """
    if expected_head is not None and not re.fullmatch("[0-9a-f]{64}", expected_head):
        raise UsageError(f"{expected_head!r} is not a head", hint="a head has 64 hex digits")
    ledger = _LedgerFile(state_dir / "ledger.jsonl")
    damage: list[Finding] = []
    seals = read_seals(ledger.entries([], having=b'"kind":"seal"'))
    keeper, key_findings = _keeper_key(state_dir / "keeper.key", seals)
    audit = Audit(
        Sources(
            objects=ObjectStore(state_dir / "objects"),
            candidates=state_dir / "candidates",
            judge=judge,
            approver_public_key=seals.first.approver_public_key if seals.first else _NOBODY,
            approval_required=approval_required,
        )
    )
    walk = _Walk(audit)
    chain = check_chain(walk.through(ledger.entries(damage)), keeper, expected_head)
    sealed = _sealed_files(campaign_dir, seals)
    findings = (*chain, *damage, *walk.findings, *seals.findings, *key_findings, *sealed)
    ordered = sorted(findings, key=lambda f: -1 if f.seq is None else f.seq)
    ok = all(finding.severity is not Severity.ALTERED for finding in findings)
    return Report(ok=ok, entries=walk.count, head=walk.head, findings=tuple(ordered))


def readable_entries(state_dir: Path) -> Iterator[Entry]:
    """Yield what of a ledger can be read at all, damaged or not; for judging, never for writing.

    Raises:
        LedgerError: there is no ledger file.
    """
    return _LedgerFile(state_dir / "ledger.jsonl").entries([])


class _Walk:
    """Audits entries on their way to the chain check, so that none is held in memory."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self.findings: list[Finding] = []
        self.head: Digest = GENESIS
        self.count = 0

    def through(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        """Yield `entries` as they are."""
        for entry in entries:
            self.findings.extend(self._audit.see(entry))
            self.head = entry.digest
            self.count += 1
            yield entry


class _LedgerFile:
    """The file as long as it was when opened, however often it is read: others may append."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._size_bytes = path.stat().st_size
        except OSError as exc:
            raise LedgerError(
                f"there is no ledger at {path}: {exc.strerror}", hint="run: inferproof init"
            ) from exc

    def entries(self, damage: list[Finding], *, having: bytes = b"") -> Iterator[Entry]:
        """Yield the lines with `having` in them; add what is wrong with others to `damage`."""
        left = self._size_bytes
        with self._path.open("rb") as file:
            for number, whole in enumerate(file):
                line = whole[:left]
                left -= len(line)
                if having not in line:
                    continue
                entry = _entry(line)
                if entry is not None:
                    yield entry
                elif line:
                    damage.append(_not_an_entry(number, line))


def _entry(line: bytes) -> Entry | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return parse_exactly(line)
    except LedgerError:
        return None


def _not_an_entry(number: int, line: bytes) -> Finding:
    if not line.endswith(b"\n"):
        what = f"ends in {len(line)} bytes of a torn line: a writer died; appending repairs it"
        return _about_file(what, Severity.NOTICE)
    what = f"line {number + 1} is not a ledger entry"
    return Finding(seq=number, kind="unreadable", what=what, severity=Severity.ALTERED)


def _keeper_key(path: Path, seals: SealHistory) -> tuple[str, list[Finding]]:
    """Return the key that must have signed the entries; it is the sealed one where one is."""
    sealed = seals.first.keeper_public_key if seals.first else None
    if not path.exists():
        missing = [] if sealed else [_about_file("no key to check it with", Severity.ALTERED)]
        return sealed or _NOBODY, missing
    try:
        own = KeeperKey.load(path).public_key
    except LedgerError as exc:
        return sealed or _NOBODY, [_about_file(exc.what, Severity.ALTERED)]
    if sealed is None:
        what = "not sealed: nothing ties it to a person's key"
        return own, [_about_file(what, Severity.NOTICE)]
    if own != sealed:
        return sealed, [_about_file(f"{path} is not the sealed keeper key", Severity.ALTERED)]
    return sealed, []


def _sealed_files(campaign_dir: Path, seals: SealHistory) -> Iterator[Finding]:
    if seals.current is None or seals.current_entry is None:
        return
    for name in broken_files(campaign_dir, seals.current):
        yield altered(seals.current_entry, f"sealed file {name}")


def _about_file(what: str, severity: Severity) -> Finding:
    return Finding(seq=None, kind="ledger", what=what, severity=severity)
