"""The champion: what the ledger says it is, and nothing else."""

from collections.abc import Sequence

from inferproof.core.values import Entry


def promotion_of(entries: Sequence[Entry], contract: str) -> Entry | None:
    """Return the entry that made the present champion of `contract`, if there is one."""
    for entry in reversed(entries):
        if entry.body.get("kind") == "promotion" and entry.body.get("contract") == contract:
            return entry
    return None


def champion(entries: Sequence[Entry], contract: str) -> str | None:
    """Return the digest of the candidate that the last promotion named for `contract`."""
    promotion = promotion_of(entries, contract)
    return str(promotion.body["candidate"]) if promotion is not None else None
