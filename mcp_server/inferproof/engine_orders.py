"""How an engine is measured at each tier: what is done, how often, on which traffic."""

from collections.abc import Sequence
from dataclasses import dataclass

from inferproof.backends.search import PlannedTrial
from inferproof.core.candidate import Candidate, EngineManifest
from inferproof.core.canonical import Json
from inferproof.core.errors import UsageError
from inferproof.core.sealed import SealedContract
from inferproof.core.service import ServiceContract
from inferproof.core.serving_facts import Stage
from inferproof.core.traffic import Traffic
from inferproof.core.values import Purpose
from inferproof.orders import Order, Round
from inferproof.serving.engines import baseline_plan, candidate_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What one job does to an engine."""

    stages: tuple[Stage, ...]
    replicas: int
    restarts: int
    traffic: Sequence[Traffic]


def needed(order: Order) -> tuple[Candidate, SealedContract]:
    """Return the candidate and its contract.

    Raises:
        UsageError: no candidate was named.
    """
    if order.candidate is None or order.contract is None:
        raise UsageError(f"{order.tool} needs a candidate", hint="call submit_candidate first")
    return order.candidate, order.contract


def measures_of(order: Order) -> Measures:
    """Return what an order measures: only graded runs have the sealed traffic and restarts."""
    contract = needed(order)[1].service
    graded = order.purpose is Purpose.GRADED
    if order.tool == "check_numerics":
        asked = contract.tasks is not None and contract.tasks.lm_eval is not None
        more: tuple[Stage, ...] = ("lm_eval",) if asked and not graded else ()
        return Measures(stages=(*_checks(contract), *more), replicas=1, restarts=1, traffic=())
    return Measures(
        stages=(*(_checks(contract) if graded else ("fidelity",)), "load"),
        replicas=contract.replicas if graded else 1,
        restarts=contract.restarts if graded else 1,
        traffic=_traffic(order, contract),
    )


def _checks(contract: ServiceContract) -> tuple[Stage, ...]:
    """Return the stages that check an engine without load: those that its contract has."""
    asked: dict[Stage, object] = {"conformance": contract.conformance, "tasks": contract.tasks}
    return ("fidelity", *(stage for stage, rules in asked.items() if rules is not None))


def _traffic(order: Order, contract: ServiceContract) -> Sequence[Traffic]:
    """Return the shapes of a tier: the final ones, where there are any, are a promotion's alone."""
    if order.purpose is not Purpose.GRADED:
        return contract.practice
    return contract.final if order.tool == "promote" and contract.final else contract.graded


def plans_of(order: Order) -> dict[str, dict[str, Json]]:
    """Return how the replicas of each arm are started; what is only checked has no baseline."""
    candidate, sealed = needed(order)
    plans = {"candidate": candidate_plan(candidate.engine).as_json()}
    if {"load", "tasks", "lm_eval"}.intersection(measures_of(order).stages):
        baseline = sealed.service.baseline
        if order.bar is not None:
            baseline = baseline.model_copy(update={"options": order.bar.options})
        plans["baseline"] = baseline_plan(baseline).as_json()
    return plans


def searched(order: Order) -> tuple[Round, SealedContract]:
    """Return the round of search and its contract.

    Raises:
        UsageError: there is none.
    """
    if order.round is None or order.contract is None:
        raise UsageError(f"{order.tool} needs a contract with a section `search`")
    return order.round, order.contract


def trials_of(order: Order) -> tuple[PlannedTrial, ...]:
    """Return the configurations of a round, the contract's own first."""
    asked, sealed = searched(order)
    own = PlannedTrial(number=0, options={}, plan=baseline_plan(sealed.service.baseline).as_json())
    others = (
        PlannedTrial(
            number=each.number,
            options=dict(each.settings),
            plan=baseline_plan(each.spec).as_json(),
        )
        for each in asked.proposals
    )
    return (own, *others)


def baseline_manifest(sealed: SealedContract) -> dict[str, Json]:
    """Return the baseline as the bench reads candidates: what it does to the weights counts."""
    baseline = sealed.service.baseline
    manifest = EngineManifest(
        contract=sealed.service.name, engine="transformers", quantisation=baseline.quantisation
    )
    return manifest.model_dump(mode="json")


def model_path(order: Order) -> str:
    """Return where the campaign's model lies on the target.

    Raises:
        UsageError: targets.yaml does not say.
    """
    name, models = order.files.campaign.model.name, order.target.models
    if name not in models:
        raise UsageError(
            f"targets.yaml does not say where model {name!r} lies on target {order.target_name!r}",
            hint=f"a person adds `models: {{{name}: /absolute/folder}}` to it and seals again",
        )
    return models[name]
