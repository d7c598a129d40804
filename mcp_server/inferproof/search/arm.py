"""The search arm: goes on with a contract's search, one job after another, from the record alone.

Whatever dies, what the ledger holds is what has been tried: a job outlives its server, and whoever
asks next settles it and goes on. A job that is lost has no result and is not counted.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from inferproof.campaign.files import CampaignFiles
from inferproof.campaign.spaces import space_of
from inferproof.campaign.status import SearchOf, SearchStanding
from inferproof.core.errors import InfrastructureError, NotFound, UsageError
from inferproof.core.reports import JobReport, Started, ToolName
from inferproof.core.sealed import SealedContract
from inferproof.core.service import Search, ServiceContract
from inferproof.core.serving_facts import BarFacts
from inferproof.core.space import Setting, Space
from inferproof.core.values import Digest, JobStatus, Purpose
from inferproof.docket import Docket, own_key
from inferproof.ledger.bodies import Attempt
from inferproof.orders import Proposal, Round
from inferproof.search.standing import Job, Standing, job_of, standing
from inferproof.search.studies import Known, defaults_of, propose
from inferproof.search.words import told
from inferproof.serving.engines.settings import settled

OnProgress = Callable[[float, float, str], Awaitable[None]]
TOOL: ToolName = "search_config"
_MOST_EMPTY_ROUNDS = 3
_SHARE_OF_WALL = 0.9


class Court(Protocol):
    """The part of the keeper that a search needs."""

    docket: Docket

    def sealed(self) -> CampaignFiles:
        """Return the campaign as it was sealed."""
        ...

    async def start(
        self,
        tool: ToolName,
        *,
        candidate: str | None,
        target: str,
        purpose: Purpose,
        request_key: str | None = None,
        round: Round | None = None,
    ) -> Started:
        """Start a job."""
        ...

    async def follow(
        self, job_id: str, *, wait_s: float, on_progress: OnProgress | None
    ) -> JobReport:
        """Wait for a job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """Where the search stands, and the job that is running or that just failed, if any."""

    standing: Standing
    job: JobReport | None


class SearchArm:
    """Plain search of one campaign's contracts."""

    def __init__(self, court: Court) -> None:
        self._court = court
        self._judged: dict[tuple[Digest, Digest], Job] = {}
        self._empty = 0

    def standing(self, sealed: SealedContract, target: str) -> Standing:
        """Return where the search of a contract stands on a target."""
        digests = [digest for _, digest in self._jobs(sealed.contract.name, target) if digest]
        jobs = [self._job(sealed, digest) for digest in digests]
        return standing(sealed.contract.name, _rules(sealed), _space(sealed), jobs)

    def bar(self, sealed: SealedContract, target: str) -> BarFacts | None:
        """Return what the baseline is set to here; None if the contract asks for no search."""
        contract = sealed.contract
        if not isinstance(contract, ServiceContract) or contract.search is None:
            return None
        found = self.standing(sealed, target)
        if found.phase != "done":
            return BarFacts(options=contract.baseline.options, search=None)
        settings: Mapping[str, Setting] = found.tuned.settings if found.tuned else {}
        spec = contract.baseline
        if settings:
            spec = settled(spec, space_of(contract.search), settings)
        return BarFacts(options=spec.options, search=found.evidence)

    def told(self, files: CampaignFiles) -> SearchOf:
        """Return what says of a contract how its search stands, on the campaign's target."""
        target, is_sealed = files.campaign.target, self._court.docket.ruling_seal() is not None

        def search_of(contract: str, evidence: Digest | None) -> SearchStanding | None:
            sealed = files.contracts.get(contract)
            rule = None if sealed is None else sealed.contract
            if not is_sealed or sealed is None or not isinstance(rule, ServiceContract):
                return None
            if rule.search is None:
                return None
            run = self._court.docket.stored(evidence).serve if evidence else None
            return told(rule, self.standing(sealed, target), run)

        return search_of

    async def go_on(
        self, contract: str, *, target: str, wait_s: float, on_progress: OnProgress | None
    ) -> SearchReport:
        """Go on with a search for up to `wait_s` seconds; a job that runs by then runs on."""
        sealed = _searched(self._court.sealed(), contract)
        deadline = time.monotonic() + wait_s
        while True:
            job_id = await self._running_or_next(sealed, target)
            if job_id is None:
                return SearchReport(standing=self.standing(sealed, target), job=None)
            left_s = max(0.0, deadline - time.monotonic())
            job = await self._court.follow(job_id, wait_s=left_s, on_progress=on_progress)
            if job.status is not JobStatus.DONE:
                return SearchReport(standing=self.standing(sealed, target), job=job)
            self._refuse_endless(sealed, job)

    async def _running_or_next(self, sealed: SealedContract, target: str) -> str | None:
        """Return the job of this search that runs, else start the next; None if it is done."""
        for attempt, digest in self._jobs(sealed.contract.name, target):
            if digest is None and self._court.docket.outcome(attempt.job_id) is None:
                return attempt.job_id
        found = self.standing(sealed, target)
        if found.phase == "done":
            return None
        started = await self._court.start(
            TOOL,
            candidate=None,
            target=target,
            purpose=Purpose.SCREEN,
            request_key=self._key(sealed, target),
            round=self._round(sealed, found),
        )
        return started.job_id

    def _key(self, sealed: SealedContract, target: str) -> str:
        """Return one name for the next job, so that two servers that go on at once start one."""
        name = sealed.contract.name
        return own_key("search", name, target, self._since(), len(self._jobs(name, target)))

    def _since(self) -> int:
        ruling = self._court.docket.ruling_seal()
        return ruling.seq if ruling else 0

    def _round(self, sealed: SealedContract, found: Standing) -> Round:
        search = _rules(sealed)
        if found.phase == "confirm":
            chosen = found.pending or self._proposals(sealed, found, found.asked)
            proposals = self._numbered(sealed, found, chosen)
            return Round(
                contract=sealed.contract.name,
                stage="confirm",
                proposals=proposals,
                restarts=search.repeats,
                until_s=None,
            )
        count = min(search.trials_per_round, found.asked - found.counted)
        job_s = self._court.sealed().campaign.budget.job_wall_s * _SHARE_OF_WALL
        return Round(
            contract=sealed.contract.name,
            stage="explore",
            proposals=self._numbered(sealed, found, self._proposals(sealed, found, count)),
            restarts=1,
            until_s=min(search.wall_s - found.seconds, job_s),
        )

    def _numbered(
        self,
        sealed: SealedContract,
        found: Standing,
        choices: Sequence[Mapping[str, Setting]],
    ) -> tuple[Proposal, ...]:
        space, own = _space(sealed), sealed.service.baseline
        first = 1 + max((each.number for each in found.explored), default=0)
        return tuple(
            Proposal(number=number, settings=chosen, spec=settled(own, space, chosen))
            for number, chosen in enumerate(choices, first)
        )

    def _proposals(
        self, sealed: SealedContract, found: Standing, count: int
    ) -> tuple[dict[str, Setting], ...]:
        search = _rules(sealed)
        known = [
            Known(settings=each.settings, score=each.score)
            for each in found.explored
            if each.counts
        ]
        seed = (int(sealed.digest[:8], 16) + len(found.explored)) % (1 << 31)
        return propose(_space(sealed), known, count, seed=seed, planned=search.trials)

    def _refuse_endless(self, sealed: SealedContract, report: JobReport) -> None:
        """Stop when jobs that ended well measured nothing, one after another: the bench is ill.

        Whoever calls again, once it is mended, goes on.
        """
        tried = self._job(sealed, report.evidence).tried if report.evidence else ()
        self._empty = 0 if any(each.counts for each in tried) else self._empty + 1
        if self._empty < _MOST_EMPTY_ROUNDS:
            return
        self._empty = 0
        said = next((f": {each.fault.reason}" for each in tried if each.fault), "")
        raise InfrastructureError(
            f"the last {_MOST_EMPTY_ROUNDS} jobs of this search measured nothing{said}",
            hint="read them with the tool evidence; a person runs: inferproof doctor",
        )

    def _jobs(self, contract: str, target: str) -> list[tuple[Attempt, Digest | None]]:
        """Return the jobs of a search since the seal, oldest first, with their evidence."""
        docket = self._court.docket
        since = self._since()
        found: list[tuple[Attempt, Digest | None]] = []
        for attempt, entry in docket.attempts():
            asked = (attempt.tool, attempt.contract, attempt.target)
            if asked == (TOOL, contract, target) and entry.seq > since:
                ended = docket.outcome(attempt.job_id)
                found.append((attempt, ended[0].evidence if ended else None))
        return found

    def _job(self, sealed: SealedContract, digest: Digest) -> Job:
        """Return a job as judged; evidence has one digest for ever, so it is judged once."""
        key = (sealed.digest, digest)
        if key not in self._judged:
            self._judged[key] = job_of(sealed, self._court.docket.stored(digest), digest)
        return self._judged[key]


def _space(sealed: SealedContract) -> Space:
    """Return the space of a search, the contract's own options being its defaults."""
    return defaults_of(space_of(_rules(sealed)), sealed.service.baseline.options)


def _rules(sealed: SealedContract) -> Search:
    search = sealed.service.search
    if search is None:
        raise UsageError(
            f"contract {sealed.contract.name} has no section `search`",
            hint="a person adds `search` to its contract.yaml and seals again",
        )
    return search


def _searched(files: CampaignFiles, name: str) -> SealedContract:
    """Return the contract, or the only one with a search if none is named."""
    known = [
        each.contract.name
        for each in files.contracts.values()
        if isinstance(each.contract, ServiceContract) and each.contract.search is not None
    ]
    if not name and len(known) == 1:
        name = known[0]
    if name not in files.contracts:
        what = f"no contract {name!r}" if name else "say which contract"
        told = ", ".join(known) or "no contract of this campaign has a section `search`"
        raise NotFound(what, hint=f"with a search: {told}")
    _rules(files.contracts[name])
    return files.contracts[name]
