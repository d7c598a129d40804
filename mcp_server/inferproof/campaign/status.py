"""Where a campaign stands and what is left to do, from its ledger entries alone."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import cast

from inferproof.campaign.champion import promotion_of
from inferproof.core.campaign import Campaign, Component
from inferproof.core.values import Digest, Entry, Outcome, Purpose, Value, Verdict

_SPEED_GATES = ("speed", "objectives")
_GRADING_TOOLS = ("check_numerics", "run_aiperf", "promote")
_RIGHT_GATE, _LOAD_GATE = "fidelity", "objectives"
_NOTES_SHOWN = 5
_SEARCH = "search_config"


class SearchStanding(Value):
    """Where plain search over a contract's baseline stands, in words.

    `below` are the metrics on which a candidate's newest run is worse than what search found.
    """

    done: bool
    told: str
    below: tuple[str, ...] = ()


SearchOf = Callable[[str, Digest | None], SearchStanding | None]
"""Says of a contract, and the evidence of its newest candidate's judged run, how search stands."""


class GateStanding(Value):
    """What one gate said about the newest candidate, and whether on practice or graded runs."""

    gate: str
    outcome: Outcome
    code: str
    reason: str
    next_step: str


class ComponentStatus(Value):
    """One component: its objective, its champion, and how far the newest candidate came.

    `proved` are the speed gate's words when the champion was promoted: ratio and interval, for an
    engine of each metric. Of an engine, `gates_missing` says what each metric lacks.
    `purpose` is that of the last judged run of the newest candidate; `overall` what it came to.
    """

    contract: str
    speedup_at_least: float
    champion: Digest | None
    proved: str | None
    newest_candidate: Digest | None
    purpose: Purpose | None
    overall: Outcome | None
    gates_met: tuple[str, ...]
    gates_missing: tuple[GateStanding, ...]
    search: SearchStanding | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the newest candidate is an engine that was put under load."""
        return _LOAD_GATE in self.gates_met or _LOAD_GATE in {g.gate for g in self.gates_missing}

    @property
    def is_unloaded(self) -> bool:
        """Whether the newest candidate is an engine that was held against the reference alone."""
        return _RIGHT_GATE in self.gates_met and not self.is_loaded


class OpenJob(Value):
    """A job whose outcome is not in the ledger yet; `trouble` says why it cannot be seen now."""

    job_id: str
    tool: str
    candidate: Digest | None
    trouble: str = ""


class PendingApproval(Value):
    """A question to a person that is neither used nor expired; `granted` once it was signed."""

    approval_id: str
    action: str
    candidate: Digest
    expires_at: datetime
    granted: bool


class CampaignStatus(Value):
    """Everything an agent needs to go on."""

    campaign: str
    goal: str
    sealed: bool
    demo: bool
    components: tuple[ComponentStatus, ...]
    open_jobs: tuple[OpenJob, ...]
    approvals: tuple[PendingApproval, ...]
    notes: tuple[str, ...]
    jobs_used: int
    jobs_budget: int
    accelerator_s: float = 0.0
    accelerator_h_budget: float | None = None
    next_steps: tuple[str, ...]

    @property
    def _accelerators(self) -> str:
        """What was used of the accelerators, if any was or there is a budget."""
        if self.accelerator_h_budget is None and not self.accelerator_s:
            return ""
        most = f" of {self.accelerator_h_budget:g}" if self.accelerator_h_budget else ""
        return f"; {self.accelerator_s / 3600:.3g}{most} accelerator hours used"

    @property
    def summary(self) -> str:
        """Say in a few lines where the campaign stands."""
        seal = "sealed" if self.sealed else "NOT SEALED"
        loud = " (DEMO KEY: approvals prove nothing)" if self.demo else ""
        lines = [
            f"{self.campaign}: {seal}{loud}; {self.jobs_used} of {self.jobs_budget} jobs used, "
            f"{len(self.open_jobs)} open{self._accelerators}. Goal: {self.goal}",
            *(_component_line(component) for component in self.components),
            *(
                f"job {job.job_id} is out of sight: {job.trouble}"
                for job in self.open_jobs
                if job.trouble
            ),
            *(
                f"approval {a.approval_id} to {a.action} {a.candidate[:12]}: "
                f"{'granted' if a.granted else 'waits for a person'}"
                for a in self.approvals
            ),
            *(f"note by a person: {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def _accelerator_s(entries: Sequence[Entry]) -> float:
    """Return what the accelerators of jobs that ended were charged."""
    charged = [entry.body.get("accelerator_s") for entry in entries]
    return sum(each for each in charged if isinstance(each, int | float))


def no_search(contract: str, evidence: Digest | None) -> SearchStanding | None:
    """Say that no contract asks for search."""
    del contract, evidence
    return None


def status(
    campaign: Campaign,
    entries: Sequence[Entry],
    *,
    now: datetime,
    search_of: SearchOf = no_search,
    troubles: Mapping[str, str] | None = None,
) -> CampaignStatus:
    """Return where `campaign` stands after `entries`; approvals expire by `now`.

    `troubles` says of open jobs, by their ids, why nobody can see them now.
    """
    by_kind: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_kind[_text(entry, "kind")].append(entry)
    seals = by_kind["seal"]
    jobs = _open_jobs(by_kind, troubles or {})
    approvals = _approvals(by_kind, now)
    components = tuple(
        _component_status(component, entries, by_kind, search_of)
        for component in campaign.components
    )
    notes = [_text(entry, "text") for entry in by_kind["note"] if entry.body["author"] == "person"]
    spent = len(by_kind["attempt"]) >= campaign.budget.jobs
    return CampaignStatus(
        campaign=campaign.name,
        goal=campaign.goal,
        sealed=bool(seals),
        demo=bool(seals) and seals[-1].body["mode"] == "demo",
        components=components,
        open_jobs=jobs,
        approvals=approvals,
        notes=tuple(notes[-_NOTES_SHOWN:]),
        jobs_used=len(by_kind["attempt"]),
        jobs_budget=campaign.budget.jobs,
        accelerator_s=_accelerator_s(by_kind["outcome"]),
        accelerator_h_budget=campaign.budget.accelerator_hours,
        next_steps=_next_steps(components, jobs, approvals, sealed=bool(seals), spent=spent),
    )


def _component_status(
    component: Component,
    entries: Sequence[Entry],
    by_kind: dict[str, list[Entry]],
    search_of: SearchOf,
) -> ComponentStatus:
    contract = component.contract
    attempts = [e for e in by_kind["attempt"] if e.body["contract"] == contract]
    stored = [e for e in by_kind["candidate"] if e.body["contract"] == contract]
    touched = [e for e in (*attempts, *stored) if e.body["candidate"] is not None]
    last = max(touched, key=lambda entry: entry.seq, default=None)
    newest = _text(last, "candidate") if last else None
    judged = _last_judged([e for e in attempts if e.body["candidate"] == newest], by_kind)
    verdicts = _verdicts(judged[1]) if judged else ()
    promotion = promotion_of(entries, contract)
    return ComponentStatus(
        contract=contract,
        speedup_at_least=component.speedup_at_least,
        champion=_text(promotion, "candidate") if promotion else None,
        proved=_proved(promotion, by_kind["outcome"]) if promotion else None,
        newest_candidate=newest,
        purpose=Purpose(_text(judged[0], "purpose")) if judged else None,
        overall=Outcome(_text(judged[1], "overall")) if judged else None,
        gates_met=tuple(v.gate for v in verdicts if v.outcome is Outcome.PASS),
        gates_missing=tuple(_standing(v) for v in verdicts if v.outcome is not Outcome.PASS),
        search=search_of(contract, _evidence(judged[1]) if judged else None),
    )


def _last_judged(
    attempts: Sequence[Entry], by_kind: dict[str, list[Entry]]
) -> tuple[Entry, Entry] | None:
    """Return the last attempt that gates judged, and its outcome; graded before practice."""
    outcomes = {e.body["job_id"]: e for e in by_kind["outcome"] if e.body["overall"]}
    runs = [e for e in attempts if e.body["tool"] in _GRADING_TOOLS]
    judged = [e for e in runs if e.body["job_id"] in outcomes]
    graded = [e for e in judged if e.body["purpose"] == Purpose.GRADED]
    for attempt in (*graded[-1:], *judged[-1:]):
        return attempt, outcomes[attempt.body["job_id"]]
    return None


def _evidence(outcome: Entry) -> Digest | None:
    return cast("Digest | None", outcome.body.get("evidence"))


def _verdicts(outcome: Entry) -> tuple[Verdict, ...]:
    return tuple(
        Verdict.model_validate(verdict)
        for verdict in cast("Sequence[object]", outcome.body["verdicts"])
    )


def _standing(verdict: Verdict) -> GateStanding:
    return GateStanding(
        gate=verdict.gate,
        outcome=verdict.outcome,
        code=verdict.code.value,
        reason=verdict.reason,
        next_step=verdict.next_step,
    )


def _proved(promotion: Entry, outcomes: Sequence[Entry]) -> str | None:
    for outcome in outcomes:
        if outcome.seq == promotion.body["outcome_seq"]:
            return next((v.reason for v in _verdicts(outcome) if v.gate in _SPEED_GATES), None)
    return None


def _open_jobs(by_kind: dict[str, list[Entry]], troubles: Mapping[str, str]) -> tuple[OpenJob, ...]:
    ended = {entry.body["job_id"] for entry in by_kind["outcome"]}
    return tuple(
        OpenJob(
            job_id=_text(entry, "job_id"),
            tool=_text(entry, "tool"),
            candidate=cast("str | None", entry.body["candidate"]),
            trouble=troubles.get(_text(entry, "job_id"), ""),
        )
        for entry in by_kind["attempt"]
        if entry.body["job_id"] not in ended
    )


def _approvals(by_kind: dict[str, list[Entry]], now: datetime) -> tuple[PendingApproval, ...]:
    granted = {entry.body["approval_id"] for entry in by_kind["approval"]}
    used = {entry.body["approval_id"] for entry in by_kind["approval_used"]}
    pending = [
        PendingApproval(
            approval_id=_text(entry, "approval_id"),
            action=_text(entry, "action"),
            candidate=_text(entry, "candidate"),
            expires_at=datetime.fromisoformat(_text(entry, "expires_at")),
            granted=entry.body["approval_id"] in granted,
        )
        for entry in by_kind["approval_request"]
        if entry.body["approval_id"] not in used
    ]
    return tuple(approval for approval in pending if approval.expires_at > now)


def _next_steps(
    components: Sequence[ComponentStatus],
    jobs: Sequence[OpenJob],
    approvals: Sequence[PendingApproval],
    *,
    sealed: bool,
    spent: bool,
) -> tuple[str, ...]:
    if not sealed:
        return ("a person runs: inferproof seal",)
    steps = [
        "call search_config" if job.tool == _SEARCH else f"call job with job_id {job.job_id}"
        for job in jobs
    ]
    for approval in approvals:
        promote = f"call promote with candidate {approval.candidate}"
        ask = f"a person runs: inferproof approve {approval.approval_id}; then {promote}"
        steps.append(promote if approval.granted else ask)
    if spent:
        return (*steps, "the job budget is spent: a person amends budget.jobs and seals again")
    asked = {approval.candidate for approval in approvals}
    searching = {job.tool for job in jobs if job.tool == _SEARCH}
    steps += [
        f"call search_config with contract {c.contract}: it finds the bar of graded runs"
        for c in components
        if c.search is not None and not c.search.done and not searching
    ]
    return (*steps, *(_next_step(c) for c in components if c.newest_candidate not in asked))


def _next_step(component: ComponentStatus) -> str:
    contract, candidate = component.contract, component.newest_candidate
    if candidate is None:
        return f"write a candidate for {contract} and call submit_candidate with its folder"
    if candidate == component.champion:
        return f"{contract} has a champion; to beat it, submit a faster candidate"
    check = f"call check_numerics with candidate {candidate}"
    if component.overall is Outcome.PASS and component.is_unloaded:
        return f"call run_aiperf with candidate {candidate}, purpose practice"
    if component.is_loaded:
        check = f"call run_aiperf with candidate {candidate}"
    match component.overall, component.purpose:
        case None, _:
            return f"{check}, purpose practice"
        case Outcome.PASS, Purpose.PRACTICE:
            return f"{check}, purpose graded"
        case ((Outcome.PASS | Outcome.APPROVAL_REQUIRED), _):
            return f"call promote with candidate {candidate}"
        case _:
            missing = component.gates_missing
            gate = next(g for g in missing if g.outcome is component.overall)
            advice = (gate.next_step or gate.reason).rstrip(".")
            told = f"{contract} {candidate[:12]}: {gate.gate} says {gate.code}: {advice}"
            blamed = gate.outcome is Outcome.FAIL
            return f"{told}; then call submit_candidate" if blamed else told


def _component_line(component: ComponentStatus) -> str:
    champion = component.champion[:12] if component.champion else "none"
    line = f"{component.contract}: asked {component.speedup_at_least:g}x; champion {champion}"
    if component.proved:
        line += f", proved {component.proved}"
    if component.newest_candidate and component.newest_candidate != component.champion:
        line += f"; newest {component.newest_candidate[:12]}"
        gates = ", ".join(f"{gate.gate} ({gate.code})" for gate in component.gates_missing)
        word = f"{component.purpose} {component.overall}" if component.overall else "not judged"
        line += f" {word}; gates missing: {gates}" if gates else f" {word}"
    return line + _search_words(component.search)


def _search_words(search: SearchStanding | None) -> str:
    if search is None:
        return ""
    below = f"; BELOW WHAT PLAIN SEARCH FOUND: {', '.join(search.below)}" if search.below else ""
    return f"; {search.told}{below}"


def _text(entry: Entry, key: str) -> str:
    return str(entry.body[key])
