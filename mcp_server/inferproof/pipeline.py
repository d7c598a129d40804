"""The one path: sealed campaign, job, evidence, verdicts, entry. Read `Keeper.start`, `_settle`.

The keeper holds no job in memory. What is open is what the ledger has an `attempt` and no
`outcome` for, so any server process can follow, settle or cancel a job that another one started.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Self

from inferproof import casework
from inferproof.bench import Bench
from inferproof.campaign import status as standing
from inferproof.campaign.candidates import CandidateStore
from inferproof.campaign.files import (
    CAMPAIGN_FILE,
    STATE_FOLDER,
    CampaignFiles,
    open_campaign,
    sealable_files,
)
from inferproof.core.candidate import Candidate
from inferproof.core.errors import (
    InfrastructureError,
    NotFound,
    SealBroken,
    Unreachable,
    UsageError,
)
from inferproof.core.evidence import Evidence
from inferproof.core.reports import JobReport, PromotionReport, Started, ToolName
from inferproof.core.sealed import SealedContract
from inferproof.core.values import Digest, Entry, Purpose, utc_now
from inferproof.docket import Docket, as_attempt
from inferproof.gates import current_digests
from inferproof.hosts.base import Host, JobState, follow, never
from inferproof.ledger import approvals
from inferproof.ledger.bodies import ApprovalRequest, Attempt, Note, dump
from inferproof.ledger.seals import read_seals, seal_campaign
from inferproof.ledger.signing import ApproverKey
from inferproof.ledger.store import Ledger
from inferproof.ledger.verify import Report as VerifyReport
from inferproof.ledger.verify import readable_entries, verify
from inferproof.machines import out_of_sight, refused, seen, troubles_of
from inferproof.orders import Order, Round, new_job_id, tool_name
from inferproof.promotion import promote
from inferproof.rollout import Rollout, has_replicas
from inferproof.search.arm import SearchArm
from inferproof.tries import earlier_tries, tries_before

OnProgress = Callable[[float, float, str], Awaitable[None]]
ARMED_GATES = {"kernel": "numerics", "service": "fidelity"}


class Keeper:
    """One campaign's keeper: the only thing that starts jobs and writes verdicts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state_dir = root / STATE_FOLDER
        self.ledger = Ledger.open(self.state_dir)
        self.docket = Docket(self.ledger, root)
        self.candidates = CandidateStore(self.state_dir)
        self._archive = casework.Archive(self.ledger.objects)
        self._bench = Bench(self.state_dir, self.candidates, self.ledger.objects)
        self.rollout = Rollout(self.docket, self._host)
        self.search = SearchArm(self)

    @classmethod
    def open(cls, campaign_dir: Path) -> Self:
        """Return the keeper of the campaign in `campaign_dir`; nothing is read yet.

        Raises:
            UsageError: there is no campaign there.
        """
        root = campaign_dir.resolve()
        if not (root / CAMPAIGN_FILE).is_file():
            raise UsageError(
                f"there is no {CAMPAIGN_FILE} in {root}",
                hint=f"run: inferproof init --campaign {root}, or name another --campaign DIR",
            )
        (root / STATE_FOLDER).mkdir(exist_ok=True)
        return cls(root)

    def head(self) -> Digest:
        """Return the digest of the newest ledger entry."""
        return self.ledger.head

    def sealed(self) -> CampaignFiles:
        """Return the campaign exactly as it was sealed.

        Raises:
            SealBroken: it is not sealed, or a sealed file changed; the message names the file.
        """
        return self._archive.campaign(self.docket.seal_in_force())

    def seal(self, key: ApproverKey, mode: Literal["passphrase", "demo"]) -> Entry:
        """Seal the campaign's files as they are, signed by the approver.

        Raises:
            FileFormatError: a file does not parse; nothing is sealed.
        """
        files = open_campaign(self.root)
        digests = sealable_files(self.root)
        for name, digest in digests.items():
            if self.ledger.objects.put_file(self.root / name) != digest:
                raise SealBroken(f"{name} changed while it was sealed", hint="seal again")
        return seal_campaign(
            self.ledger, key, campaign=files.campaign.name, mode=mode, files=digests
        )

    def submit_candidate(self, folder: Path) -> Candidate:
        """Store a snapshot of `folder` and record it; the same content gives the same candidate."""
        files = self.sealed()
        candidate = self.candidates.add(folder)
        casework.contract_named(files, candidate.manifest.contract)
        self.docket.record_candidate(candidate)
        return candidate

    def entry_of(self, candidate: Digest) -> Digest:
        """Return the entry that recorded a candidate. Raises NotFound."""
        return self.docket.candidate_entry(candidate).digest

    async def start(
        self,
        tool: ToolName,
        *,
        candidate: str | None,
        target: str,
        purpose: Purpose,
        request_key: str | None = None,
        argv: tuple[str, ...] = (),
        replicas: int = 1,
        round: Round | None = None,
    ) -> Started:
        """Start a job; the attempt is in the ledger before anything is drawn or run.

        Raises:
            SealBroken, NotFound, UsageError: nothing was started and nothing recorded.
        """
        order = self._order(
            tool, candidate, round, target=target, purpose=purpose, argv=argv, replicas=replicas
        )
        await self._bench.machines.reach(order.target, target)
        tries = tries_before(self.docket, order)
        request = self._bench.request(order, arm=self._must_arm(order), tries=tries)
        budget = order.files.campaign.budget
        entry, job_id = self.docket.record(order.attempt(request_key), budget)
        if entry is None:
            return Started(job_id=job_id, is_new=False)
        attempt = as_attempt(entry)
        known = self._bench.evidence_in_cache(order, entry)
        if known is not None:
            self._conclude(attempt, entry, known)
            return Started(job_id=job_id, is_new=True)
        try:
            await self._bench.start(request, order, attempt)
        except Unreachable:
            pass  # it may run there or not: whoever looks later finds out
        except InfrastructureError as error:
            await self._close(attempt, entry, await refused(self._bench.host(order), job_id, error))
        return Started(job_id=job_id, is_new=True)

    async def follow(
        self,
        job_id: str,
        *,
        wait_s: float,
        on_progress: OnProgress | None = None,
        replicas: int | None = None,
    ) -> JobReport:
        """Wait up to `wait_s` seconds for a job's end, settle it, and report it.

        With `replicas`, a deployment that has so many of them healthy is waited for no longer.
        """
        until = never if replicas is None else has_replicas(replicas)
        attempt, entry = self.docket.attempt(job_id)
        if self.docket.outcome(job_id) is None:
            try:
                host = self._host(attempt, entry)
                async for state in follow(host, job_id, wait_s=wait_s, until=until):
                    if on_progress is not None and state.progress is not None:
                        step = state.progress
                        await on_progress(step.done, step.total, step.message)
            except (InfrastructureError, UsageError):
                pass  # not launched (yet), or not to be seen: the report says which
        return await self.report(job_id)

    async def report(self, job_id: str) -> JobReport:
        """Report a job as it stands, settled if it is over."""
        attempt, entry = self.docket.attempt(job_id)
        return self._told(attempt, await self._settle(attempt, entry))

    async def jobs(self) -> tuple[JobReport, ...]:
        """Report every job of the campaign, oldest first."""
        return tuple([await self.report(attempt.job_id) for attempt, _ in self.docket.attempts()])

    async def cancel(self, job_id: str) -> JobReport:
        """End a job and all that it started, and record it as cancelled."""
        attempt, entry = self.docket.attempt(job_id)
        if self.docket.outcome(job_id) is None:
            await self._host(attempt, entry).cancel(job_id)
        return await self.report(job_id)

    async def promote(
        self, candidate: str, *, target: str, wait_s: float, on_progress: OnProgress | None = None
    ) -> PromotionReport:
        """Run every gate again and, when all pass and a person agreed, move the champion."""
        subject = approvals.Subject(
            action="promote", candidate=self.candidates.get(candidate).digest, target=target
        )
        campaign = self.sealed().campaign
        return await promote(self, subject, campaign, wait_s=wait_s, on_progress=on_progress)

    async def status(self) -> standing.CampaignStatus:
        """Return where the campaign stands, after settling what is over."""
        states = {a.job_id: await self._settle(a, entry) for a, entry in self.docket.attempts()}
        files = self.sealed() if self.docket.ruling_seal() else open_campaign(self.root)
        entries, told = tuple(self.ledger.entries()), self.search.told(files)
        return standing.status(
            files.campaign, entries, now=utc_now(), search_of=told, troubles=troubles_of(states)
        )

    def evidence(self, ref: str) -> Evidence:
        """Return stored evidence by its digest or by its job's id.

        Raises:
            NotFound: nothing was stored under that name (yet).
        """
        return self.docket.evidence(ref)

    def note(self, text: str) -> Entry:
        """Record a person's steering; agents see it in campaign_status."""
        if not text.strip():
            raise UsageError("the note is empty", hint='say something: inferproof note "TEXT"')
        return self.ledger.append(dump(Note(text=text, author="person")))

    def find_request(self, approval_id: str) -> ApprovalRequest:
        """Return the request that a person is about to answer.

        Raises:
            ApprovalRefused: there is none, it expired, or it was answered already.
        """
        return approvals.find_request(self.ledger, approval_id, now=utc_now())

    def approve(self, request: ApprovalRequest, key: ApproverKey) -> Entry:
        """Record a person's signed approval of `request`."""
        return approvals.approve(self.ledger, request, key)

    def verify(self, expected_head: Digest | None) -> VerifyReport:
        """Return what is wrong with the record, damaged or not; every verdict is judged again."""
        seals = read_seals(readable_entries(self.state_dir))

        def judge_again(contract: Digest, evidence: Evidence) -> casework.Verdicts:
            files = self._archive.campaign(seals.named(evidence.seal))
            name = casework.name_of(files, contract)
            return casework.judged(files, name, evidence, self._arming(evidence))

        ruling = seals.current_entry
        asked = self._archive.campaign(ruling).campaign.approvals if ruling else None
        return verify(
            self.state_dir,
            self.root,
            judge=judge_again,
            expected_head=expected_head,
            approval_required=asked is None or "promote" in asked.required_for,
        )

    def _order(
        self,
        tool: ToolName,
        candidate: str | None,
        round_: Round | None,
        *,
        target: str,
        purpose: Purpose,
        argv: tuple[str, ...],
        replicas: int,
    ) -> Order:
        """Return what is asked for, resolved against the sealed campaign."""
        seal = self.docket.seal_in_force()
        files = self._archive.campaign(seal)
        if target not in files.targets:
            raise NotFound(
                f"no target {target!r} in targets.yaml", hint=f"targets: {', '.join(files.targets)}"
            )
        stored = self.candidates.get(candidate) if candidate is not None else None
        named = stored.manifest.contract if stored else round_.contract if round_ else None
        contract = casework.contract_named(files, named) if named else None
        return Order(
            job_id=new_job_id(tool),
            tool=tool,
            files=files,
            seal_files=casework.seal_of(seal).files,
            candidate=stored,
            contract=contract,
            target_name=target,
            purpose=purpose,
            argv=argv,
            replicas=replicas,
            round=round_,
            bar=self.search.bar(contract, target) if contract else None,
        )

    async def _settle(self, attempt: Attempt, entry: Entry) -> JobState:
        """Return where the job stands; when it has just ended, judge and record it first."""
        ended = self.docket.outcome(attempt.job_id)
        if ended is not None:
            return JobState(status=ended[0].status, failure=ended[0].failure or "")
        try:
            state = await seen(self._host(attempt, entry), attempt.job_id, entry)
            if state.status.is_final:
                await self._close(attempt, entry, state)
        except (InfrastructureError, UsageError) as error:
            return out_of_sight(error)
        return await self._settle(attempt, entry) if state.status.is_final else state

    async def _close(self, attempt: Attempt, entry: Entry, state: JobState) -> None:
        """Collect the evidence of a job that is over, judge it, and append its one outcome."""
        files = self._files(entry)
        evidence = await self._bench.evidence(attempt, files, entry, state)
        self._conclude(attempt, entry, evidence)
        await self._bench.keep_build(attempt, files, evidence)
        await self._bench.settled(attempt, files)

    def _conclude(self, attempt: Attempt, entry: Entry, bare: Evidence) -> None:
        """Judge evidence under the seal it was measured under; store it, then the outcome."""
        seal = self.docket.seal_before(entry)
        files = self._archive.campaign(seal)
        contract = files.contracts[attempt.contract] if attempt.contract else None
        earlier = earlier_tries(self.docket, attempt, seal, contract)
        evidence = bare.model_copy(update={"seal": seal.digest, "earlier": earlier})
        if contract is None:
            stored = self.docket.store(evidence)
            body = casework.outcome_body(attempt, evidence, stored, ())
            self.ledger.append_outcome_once(attempt.job_id, body)
            return
        key = self._arming_key(contract, attempt.target, files)
        if not casework.ran_mutants(evidence):
            evidence = evidence.model_copy(update={"arming": casework.armed_by(self.ledger, key)})
        stored = self.docket.store(evidence)
        evidence = self.docket.stored(stored)  # what is judged is what anyone can read again
        verdicts = casework.judged(files, contract.contract.name, evidence, self._arming(evidence))
        body = casework.outcome_body(attempt, evidence, stored, verdicts)
        self.ledger.append_outcome_once(attempt.job_id, body)
        armed = casework.arming_body(contract, evidence, stored, key)
        if armed is not None:
            self.ledger.append(armed)

    def _must_arm(self, order: Order) -> bool:
        """Whether the contract's mutants have yet to be refused on this target, by these tools."""
        if order.contract is None:
            return False
        key = self._arming_key(order.contract, order.target_name, order.files)
        return casework.armed_by(self.ledger, key) is None

    def _arming_key(
        self, contract: SealedContract, target: str, files: CampaignFiles
    ) -> casework.ArmingKey:
        tools = self._bench.machines.tools_digest(files.targets[target], target)
        gate = ARMED_GATES[contract.contract.kind]
        return (contract.digest, current_digests()[gate], target, tools)

    def _arming(self, evidence: Evidence) -> Evidence | None:
        return self.docket.stored(evidence.arming) if evidence.arming is not None else None

    def _told(self, attempt: Attempt, state: JobState) -> JobReport:
        ended = self.docket.outcome(attempt.job_id)
        step = state.progress
        return JobReport(
            job_id=attempt.job_id,
            tool=tool_name(attempt.tool),
            status=state.status,
            overall=ended[0].overall if ended else None,
            verdicts=ended[0].verdicts if ended else (),
            candidate=attempt.candidate,
            contract=attempt.contract,
            purpose=attempt.purpose,
            target=attempt.target,
            evidence=ended[0].evidence if ended else None,
            entry=ended[1].digest if ended else None,
            head=self.ledger.head,
            progress_done=step.done if step else 0,
            progress_total=step.total if step else 0,
            progress_message=step.message if step else "",
            failure=state.failure,
        )

    def _files(self, entry: Entry) -> CampaignFiles:
        return self._archive.campaign(self.docket.seal_before(entry))

    def _host(self, attempt: Attempt, entry: Entry) -> Host:
        return self._bench.machines.host(self._files(entry).targets[attempt.target], attempt.target)
