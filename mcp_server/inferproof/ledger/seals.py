"""The seal: which bytes a person vouched for, and whether they still lie on disk.

The first seal decides whose signature counts: any later one must be by the same approver key, for
the same campaign and keeper key, and must name the seal it replaces. Whoever can write the whole
ledger anew can also choose the first seal; only a head kept elsewhere shows that.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from inferproof.core.canonical import Json
from inferproof.core.errors import LedgerError, SealBroken
from inferproof.core.values import Digest, Entry, Value
from inferproof.ledger.bodies import (
    UNSIGNED,
    Seal,
    json_body,
    parse_body,
    sign_body,
    without_signature,
)
from inferproof.ledger.chain import Finding, altered, notice
from inferproof.ledger.objects import hash_file
from inferproof.ledger.signing import ApproverKey, is_signed_json
from inferproof.ledger.store import Ledger

_CLOSED_FOLDERS = ("contracts",)


class SealHistory(Value):
    """All seals of a ledger: the first and the ruling one, and what is wrong with others."""

    first: Seal | None = None
    current: Seal | None = None
    current_entry: Entry | None = None
    entries: tuple[Entry, ...] = ()
    findings: tuple[Finding, ...] = ()

    def named(self, digest: Digest | None) -> Entry:
        """Return the valid seal entry of that digest.

        Raises:
            SealBroken: there is none.
        """
        for entry in self.entries:
            if entry.digest == digest:
                return entry
        raise SealBroken(f"no valid seal of this ledger has the digest {digest}")


def seal_campaign(
    ledger: Ledger,
    key: ApproverKey,
    *,
    campaign: str,
    mode: Literal["passphrase", "demo"],
    files: Mapping[str, Digest],
) -> Entry:
    """Append a seal over `files` by `key`, replacing the ruling seal if there is one.

    Raises:
        SealBroken: `key` is not the key of the first seal.
    """
    keeper_public_key = ledger.keeper_public_key

    def body(locked: Ledger) -> dict[str, Json]:
        history = read_seals(locked.entries("seal"))
        if history.first and history.first.approver_public_key != key.public_key:
            raise SealBroken(
                "this campaign was sealed with another approver key",
                hint="seal with that key, or make a new campaign with inferproof init",
            )
        ruling = history.current_entry
        unsigned = Seal(
            campaign=campaign,
            mode=mode,
            files=dict(files),
            approver_public_key=key.public_key,
            keeper_public_key=keeper_public_key,
            replaces=ruling.digest if ruling else None,
            approver_signature=UNSIGNED,
        )
        return sign_body(unsigned, key.sign)

    return ledger.append_from(body)


def current_seal(entries: Iterable[Entry]) -> Seal:
    """Return the ruling seal.

    Raises:
        SealBroken: no valid seal is among `entries`.
    """
    seal = read_seals(entries).current
    if seal is None:
        raise SealBroken("the campaign is not sealed", hint="a person runs: inferproof seal")
    return seal


def read_seals(entries: Iterable[Entry]) -> SealHistory:
    """Return the history of seals among `entries`, which may hold other kinds too."""
    history = SealHistory()
    for entry in entries:
        if entry.body.get("kind") == "seal":
            history = _with_seal(history, entry)
    return history


def broken_files(folder: Path, seal: Seal) -> list[str]:
    """Return each sealed file that changed or is missing, and each unsealed one in contracts/."""
    broken: list[str] = []
    for relative, digest in sorted(seal.files.items()):
        path = folder / relative
        if not os.path.lexists(path):
            broken.append(f"{relative} (missing)")
        elif not _is(path, digest):
            broken.append(f"{relative} (changed)")
    for name in _CLOSED_FOLDERS:
        present = (path.relative_to(folder).as_posix() for path in _leaves(folder / name))
        broken += [f"{path} (not sealed)" for path in sorted(present) if path not in seal.files]
    return broken


def _with_seal(history: SealHistory, entry: Entry) -> SealHistory:
    problem = ""
    seal: Seal | None = None
    try:
        parsed = parse_body(entry.body)
        seal = parsed if isinstance(parsed, Seal) else None
    except LedgerError as exc:
        problem = exc.what
    if seal is not None:
        problem = _problem(history, seal, entry)
    if seal is None or problem:
        finding = altered(entry, problem)
        return history.model_copy(update={"findings": (*history.findings, finding)})
    findings = history.findings
    if seal.mode == "demo":
        findings += (notice(entry, "demo seal: its approver key is not protected"),)
    return SealHistory(
        first=history.first or seal,
        current=seal,
        current_entry=entry,
        entries=(*history.entries, entry),
        findings=findings,
    )


def _problem(history: SealHistory, seal: Seal, entry: Entry) -> str:
    first = history.first or seal
    ruling = history.current_entry.digest if history.current_entry else None
    unsigned = without_signature(json_body(entry))
    if seal.approver_public_key != first.approver_public_key:
        return "sealed with another approver key than the first seal"
    if not is_signed_json(unsigned, seal.approver_signature, public_key=first.approver_public_key):
        return "the seal's signature is not by its approver key"
    if (seal.campaign, seal.keeper_public_key) != (first.campaign, first.keeper_public_key):
        return "seals another campaign or keeper key than the first seal"
    if seal.replaces != ruling:
        return "does not replace the seal in force: an older seal put in again"
    return ""


def _is(path: Path, digest: Digest) -> bool:
    try:
        return hash_file(path) == digest
    except LedgerError:
        return False


def _leaves(folder: Path) -> Iterable[Path]:
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        yield from (here / name for name in files)
        yield from (here / name for name in folders if (here / name).is_symlink())
