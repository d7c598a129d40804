"""From finished evidence to verdicts, under the campaign as its seal had it.

The rule is rebuilt from the ledger and its objects alone, so a verdict can be given again later,
whatever the campaign folder says by then.
"""

import tempfile
from pathlib import Path
from typing import TypeAlias

from inferproof.campaign.files import CampaignFiles, open_campaign
from inferproof.core.canonical import Json
from inferproof.core.errors import LedgerError, SealBroken
from inferproof.core.evidence import Evidence
from inferproof.core.sealed import SealedContract
from inferproof.core.service import ServiceContract
from inferproof.core.values import Digest, Entry, JobStatus, Verdict
from inferproof.gates import armed, fidelity_armed, judge_all, overall
from inferproof.gates.base import Case, ServiceCase
from inferproof.ledger.bodies import Arming, Attempt, OutcomeOfJob, Seal, dump, parse_body
from inferproof.ledger.objects import ObjectStore
from inferproof.ledger.store import Ledger

Verdicts: TypeAlias = tuple[Verdict, ...]


class Archive:
    """Campaigns as their seals had them, rebuilt from the object store."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._opened: dict[Digest, CampaignFiles] = {}

    def campaign(self, entry: Entry) -> CampaignFiles:
        """Return the campaign that a seal entry covers; its folders are gone, its values stay.

        Raises:
            LedgerError: a sealed file is missing from the object store or was altered there.
        """
        if entry.digest not in self._opened:
            self._opened[entry.digest] = self._rebuilt(seal_of(entry))
        return self._opened[entry.digest]

    def _rebuilt(self, seal: Seal) -> CampaignFiles:
        with tempfile.TemporaryDirectory(prefix="inferproof-") as folder:
            for name, digest in seal.files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self._objects.get(digest))
            return open_campaign(Path(folder))


def seal_of(entry: Entry) -> Seal:
    """Return the seal in a seal entry."""
    body = parse_body(entry.body)
    if not isinstance(body, Seal):
        raise LedgerError(f"entry {entry.seq} is not a seal")
    return body


def contract_named(files: CampaignFiles, name: str) -> SealedContract:
    """Return a contract of the campaign.

    Raises:
        SealBroken: the campaign has no such contract, so nothing may be judged by it.
    """
    if name not in files.contracts:
        known = ", ".join(files.contracts)
        raise SealBroken(
            f"the sealed campaign has no contract {name!r}",
            hint=f"its contracts are: {known}; a person can seal an amended campaign",
        )
    return files.contracts[name]


def name_of(files: CampaignFiles, contract: Digest) -> str:
    """Return the name of the campaign's contract that has this digest."""
    for name, sealed in files.contracts.items():
        if sealed.digest == contract:
            return name
    raise SealBroken(f"contract {contract} is not in the seal that the evidence names")


def judged(
    files: CampaignFiles, contract_name: str, evidence: Evidence, arming: Evidence | None
) -> Verdicts:
    """Return the verdicts on finished evidence under a sealed campaign; none if it failed."""
    if evidence.status is not JobStatus.DONE or evidence.candidate is None:
        return ()
    sealed = contract_named(files, contract_name)
    asked = {part.contract: part.speedup_at_least for part in files.campaign.components}
    if isinstance(sealed.contract, ServiceContract):
        return judge_all(
            ServiceCase(
                contract=sealed.contract,
                contract_digest=sealed.digest,
                candidate=evidence.candidate,
                speedup_at_least=asked[contract_name],
                evidence=evidence,
                arming=arming.serve if arming else None,
            )
        )
    return judge_all(
        Case(
            contract=sealed.contract,
            contract_digest=sealed.digest,
            candidate=evidence.candidate,
            speedup_at_least=asked[contract_name],
            evidence=evidence,
            arming=arming.grade if arming else None,
            accelerator=files.campaign.accelerator,
        )
    )


def outcome_body(
    attempt: Attempt, evidence: Evidence, stored: Digest, verdicts: Verdicts
) -> dict[str, Json]:
    """Return the body of the one outcome of a job."""
    return dump(
        OutcomeOfJob(
            job_id=attempt.job_id,
            status=evidence.status,
            evidence=stored,
            verdicts=verdicts,
            overall=overall(verdicts)[0] if verdicts else None,
            failure=evidence.failure or None,
            accelerator_s=evidence.lease.accelerator_s if evidence.lease else None,
        )
    )


def arming_body(
    sealed: SealedContract, evidence: Evidence, stored: Digest, key: "ArmingKey"
) -> dict[str, Json] | None:
    """Return the record of what the gate made of the contract's mutants, if they ran."""
    left = _survivors(sealed, evidence)
    if left is None:
        return None
    return dump(
        Arming(
            contract=key[0],
            gate_digest=key[1],
            target=key[2],
            tools_digest=key[3],
            evidence=stored,
            armed=not left,
            survivors=left,
        )
    )


def _survivors(sealed: SealedContract, evidence: Evidence) -> tuple[str, ...] | None:
    """Return the mutants that were not refused; None when none ran."""
    contract, grade, serve = sealed.contract, evidence.grade, evidence.serve
    if isinstance(contract, ServiceContract):
        ran = None if serve is None else serve.mutants
        return None if ran is None else fidelity_armed.survivors(contract, ran)
    ran = None if grade is None else grade.mutants
    return None if ran is None else armed.survivors(contract, ran)


def ran_mutants(evidence: Evidence) -> bool:
    """Whether the contract's mutants were measured in this very job, or need not have been."""
    for facts in (evidence.grade, evidence.serve):
        if facts is not None:
            return facts.mutants is not None
    return True


ArmingKey: TypeAlias = tuple[Digest, Digest, str, Digest]
"""Contract, gate digest, target and tools digest: an arming holds for exactly these."""


def armed_by(ledger: Ledger, key: ArmingKey) -> Digest | None:
    """Return the evidence of the newest successful arming under `key`."""
    found: Digest | None = None
    for entry in ledger.entries("arming"):
        body = parse_body(entry.body)
        if isinstance(body, Arming) and body.armed:
            at = (body.contract, body.gate_digest, body.target, body.tools_digest)
            found = body.evidence if at == key else found
    return found
