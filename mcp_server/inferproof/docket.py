"""What the ledger says about seals, attempts and outcomes, read as values."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from inferproof.core.campaign import Budget
from inferproof.core.candidate import Candidate
from inferproof.core.canonical import Json, canonical_bytes
from inferproof.core.errors import LedgerError, NotFound, SealBroken, UsageError
from inferproof.core.evidence import Evidence
from inferproof.core.values import Digest, Entry
from inferproof.leasing import reserved
from inferproof.ledger.bodies import Attempt, CandidateStored, OutcomeOfJob, dump, parse_body
from inferproof.ledger.seals import broken_files, read_seals
from inferproof.ledger.store import Ledger


class Docket:
    """The open and closed cases of one campaign."""

    def __init__(self, ledger: Ledger, root: Path) -> None:
        self._ledger = ledger
        self._root = root

    def seal_in_force(self) -> Entry:
        """Return the ruling seal's entry, once every sealed file is found as it was sealed.

        Raises:
            SealBroken: nothing is sealed, or a sealed file changed; the message names it.
        """
        history = read_seals(self._ledger.entries("seal"))
        if history.current is None or history.current_entry is None:
            raise SealBroken("the campaign is not sealed", hint="a person runs: inferproof seal")
        broken = broken_files(self._root, history.current)
        if broken:
            raise SealBroken(
                f"sealed files are not as they were sealed: {', '.join(broken)}",
                hint="restore them, or a person seals the amended campaign: inferproof seal",
            )
        return history.current_entry

    def seal_before(self, entry: Entry) -> Entry:
        """Return the seal that was in force when `entry` was written."""
        earlier = (seal for seal in self._ledger.entries("seal") if seal.seq < entry.seq)
        found = read_seals(earlier).current_entry
        if found is None:
            raise SealBroken(f"entry {entry.seq} was written before any seal")
        return found

    def ruling_seal(self) -> Entry | None:
        """Return the newest valid seal's entry, whatever the files on disk say."""
        return read_seals(self._ledger.entries("seal")).current_entry

    def attempts(self) -> Iterator[tuple[Attempt, Entry]]:
        """Yield every attempt, oldest first."""
        for entry in self._ledger.entries("attempt"):
            yield as_attempt(entry), entry

    def attempt(self, job_id: str) -> tuple[Attempt, Entry]:
        """Return the attempt of a job.

        Raises:
            NotFound: no such job was ever recorded.
        """
        for attempt, entry in self.attempts():
            if attempt.job_id == job_id:
                return attempt, entry
        raise NotFound(f"no job {job_id!r}", hint="campaign_status lists the open jobs")

    def outcome(self, job_id: str) -> tuple[OutcomeOfJob, Entry] | None:
        """Return how a job ended, if it has."""
        entry = self._ledger.outcome_of(job_id)
        return None if entry is None else (as_outcome(entry), entry)

    def evidence(self, ref: str) -> Evidence:
        """Return stored evidence by its digest or by its job's id.

        Raises:
            NotFound: nothing was stored under that name (yet).
        """
        outcomes = [as_outcome(entry) for entry in self._ledger.entries("outcome")]
        found = next((o.evidence for o in outcomes if ref in (o.job_id, o.evidence)), None)
        if found is None:
            raise NotFound(f"no evidence {ref!r}", hint="give a job_id that has ended, or a digest")
        return self.stored(found)

    def stored(self, digest: Digest) -> Evidence:
        """Return evidence as whoever judges it again will read it."""
        return Evidence.model_validate_json(self._ledger.objects.get(digest))

    def store(self, evidence: Evidence) -> Digest:
        """Put evidence into the object store."""
        data = canonical_bytes(evidence.model_dump(mode="json"))
        return self._ledger.objects.put_bytes(data)

    def record_candidate(self, candidate: Candidate) -> None:
        """Append that a snapshot was taken, unless that is on record."""
        body = CandidateStored(
            candidate=candidate.digest,
            files=candidate.files,
            contract=candidate.manifest.contract,
            parent=candidate.manifest.parent,
        )
        self._ledger.append_if(lambda _: None if self._stored_in(body.candidate) else dump(body))

    def candidate_entry(self, candidate: Digest) -> Entry:
        """Return the entry that recorded a snapshot.

        Raises:
            NotFound: none did.
        """
        found = self._stored_in(candidate)
        if found is None:
            raise NotFound(f"no candidate {candidate!r} on record", hint="call submit_candidate")
        return found

    def _stored_in(self, candidate: Digest) -> Entry | None:
        entries = self._ledger.entries("candidate")
        return next((entry for entry in entries if entry.body["candidate"] == candidate), None)

    def record(self, attempt: Attempt, budget: Budget) -> tuple[Entry | None, str]:
        """Append the attempt, or name the job that the same request key started before.

        It reserves no more of the accelerators than the budget leaves.

        Raises:
            UsageError: the campaign's budget of jobs or of accelerator hours is spent.
        """
        known: list[str] = []

        def body(ledger: Ledger) -> Mapping[str, Json] | None:
            earlier = [as_attempt(entry) for entry in ledger.entries("attempt")]
            if attempt.request_key is not None:
                known.extend(a.job_id for a in earlier if a.request_key == attempt.request_key)
            if known:
                return None
            if len(earlier) >= budget.jobs:
                raise UsageError(
                    f"the campaign's budget of {budget.jobs} jobs is spent",
                    hint="a person raises budget.jobs and seals the campaign again",
                )
            charged = ledger.entries(("attempt", "outcome"))
            return dump(reserved(attempt, budget.accelerator_hours, charged))

        entry = self._ledger.append_if(body)
        return entry, known[0] if known else attempt.job_id


def own_key(*parts: object) -> str:
    """Return a request key of the keeper's own: no tool takes a key with a colon or a space."""
    return " ".join(["keeper:", *map(str, parts)])


def as_attempt(entry: Entry) -> Attempt:
    """Return the attempt in an entry."""
    body = parse_body(entry.body)
    if not isinstance(body, Attempt):
        raise LedgerError(f"entry {entry.seq} is not an attempt")
    return body


def as_outcome(entry: Entry) -> OutcomeOfJob:
    """Return the outcome in an entry."""
    body = parse_body(entry.body)
    if not isinstance(body, OutcomeOfJob):
        raise LedgerError(f"entry {entry.seq} is not an outcome")
    return body
