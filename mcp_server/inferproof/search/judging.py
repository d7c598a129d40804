"""What came of each configuration, by the gates that judge candidates; pure.

A configuration that did not serve, answers other than the model, or whose run is not to be
believed has a verdict in place of a score, and can never be the best.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import get_args

from inferproof.core.evidence import Evidence
from inferproof.core.sealed import SealedContract
from inferproof.core.search_facts import SearchFacts, Stage, TrialFacts
from inferproof.core.service import Metric, Search
from inferproof.core.serving_facts import ServeFacts
from inferproof.core.space import Setting
from inferproof.core.values import Digest, Outcome, Verdict
from inferproof.gates.audit import Audited
from inferproof.gates.base import Clerk, Gate, ServiceCase
from inferproof.gates.believability import Believable
from inferproof.gates.fidelity import FidelityGate
from inferproof.gates.ratios import ratio_of
from inferproof.gates.serving import Serving

GATES: tuple[Gate[ServiceCase], ...] = (Serving(), FidelityGate(), Believable(), Audited())
_NOBODY = "0" * 64
_CLERK = Clerk("search", __name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One metric on one traffic shape: both figures, and the ratio over default, 95 % interval."""

    traffic: str
    metric: Metric
    default: float
    figure: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One configuration in one job. With a `fault` it has no gains.

    `others` are gains that the search does not ask for: of finalists, for whoever compares.
    """

    number: int
    settings: Mapping[str, Setting]
    stage: Stage
    evidence: Digest
    gains: tuple[Gain, ...]
    fault: Verdict | None
    others: tuple[Gain, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether it says something about the configuration.

        The bench's failures do not, nor does a busy machine: else noise could end a search.
        """
        return self.fault is None or self.fault.outcome is Outcome.FAIL

    @property
    def score(self) -> float | None:
        """The geometric mean of its ratios over default."""
        return _mean(each.value for each in self.gains) if self.gains else None

    @property
    def low(self) -> float:
        """The score with every ratio at the lower end of its interval."""
        return _mean(max(each.low, 0.0) for each in self.gains) if self.gains else 0.0

    @property
    def high(self) -> float:
        """The score with every ratio at the upper end of its interval."""
        return _mean(each.high for each in self.gains) if self.gains else 0.0


def judged_round(sealed: SealedContract, evidence: Evidence, stored: Digest) -> tuple[Tried, ...]:
    """Return what came of each configuration of one job beside the contract's own."""
    facts, search = evidence.search, sealed.service.search
    if facts is None or search is None or facts.contract_seen != sealed.digest:
        return ()
    own = next((trial for trial in facts.trials if trial.number == 0), None)
    if own is None:
        return ()
    return tuple(
        _tried(sealed, evidence, stored, (own, trial)) for trial in facts.trials if trial.number
    )


def best_of(tried: Sequence[Tried], count: int) -> tuple[Tried, ...]:
    """Return the `count` best that beat default, the best first."""
    scored = [(each.score or 0.0, each) for each in tried if each.fault is None]
    beating = sorted((pair for pair in scored if pair[0] > 1), key=lambda pair: -pair[0])
    return tuple(each for _, each in beating[:count])


def _tried(
    sealed: SealedContract,
    evidence: Evidence,
    stored: Digest,
    pair: tuple[TrialFacts, TrialFacts],
) -> Tried:
    own, trial = pair
    facts, search = evidence.search, sealed.service.search
    gains, others = (), ()
    fault: Verdict | None = None
    if facts is not None and search is not None:
        serve = _as_serve(facts, own, trial)
        fault = _fault(sealed, evidence, serve)
        gains = () if fault else tuple(_gains(serve, search, search.metrics))
        if not fault and min((each.value for each in gains), default=0.0) <= 0:
            fault, gains = _CLERK.unmeasured("every metric of the search"), ()
        if gains and facts.stage == "confirm":
            rest = [metric for metric in get_args(Metric) if metric not in search.metrics]
            others = tuple(each for each in _gains(serve, search, rest) if each.value > 0)
    return Tried(
        number=trial.number,
        settings=trial.options,
        stage=facts.stage if facts else "explore",
        evidence=stored,
        gains=gains,
        fault=fault,
        others=others,
    )


def _as_serve(facts: SearchFacts, own: TrialFacts, trial: TrialFacts) -> ServeFacts:
    """Return a configuration as the candidate of a run whose baseline is the contract's own."""
    return ServeFacts(
        bits=facts.bits,
        candidate_seen=_NOBODY,
        contract_seen=facts.contract_seen,
        model_name=facts.model_name,
        model_digest=facts.model_digest,
        stages=("fidelity", "load"),
        separation=facts.separation,
        sandbox=facts.sandbox,
        cpu_model=facts.cpu_model,
        cores=facts.cores,
        versions=facts.versions,
        incidents=(),
        deployments=(*own.deployments, *trial.deployments),
        fidelity=trial.fidelity,
        mutants=None,
        loads=(*own.loads, *trial.loads),
    )


def _fault(sealed: SealedContract, evidence: Evidence, serve: ServeFacts) -> Verdict | None:
    """Return the first gate's verdict that is no pass."""
    case = ServiceCase(
        contract=sealed.service,
        contract_digest=sealed.digest,
        candidate=_NOBODY,
        speedup_at_least=1.0,
        evidence=evidence.model_copy(update={"serve": serve, "search": None}),
    )
    for gate in GATES:
        verdict = gate.judge(case)
        if verdict.outcome is not Outcome.PASS:
            return verdict
    return None


def _gains(serve: ServeFacts, search: Search, metrics: Sequence[Metric]) -> Iterator[Gain]:
    for name in (step.name for shape in search.traffic for step in shape.steps):
        for metric in metrics:
            ratio = ratio_of(serve, name, metric)
            yield Gain(
                traffic=name,
                metric=metric,
                default=ratio.baseline,
                figure=ratio.candidate,
                value=ratio.value,
                low=ratio.low,
                high=ratio.high,
            )


def _mean(ratios: Iterator[float]) -> float:
    values = list(ratios)
    return math.exp(fmean(map(math.log, values))) if min(values) > 0 else 0.0
