"""The few facts of an engine's measurement that a model needs to see at once, with units."""

from collections.abc import Iterable
from statistics import fmean
from typing import get_args

from inferproof.core.service import Metric
from inferproof.core.serving_facts import Arm, DeploymentFacts, FidelityFacts, LoadFacts, ServeFacts
from inferproof.gates.ratios import ratio_of
from inferproof.tools.api_facts import api_facts
from inferproof.tools.results import Fact, clip, quoted

_UNITS = {"output_tokens_per_s": "tokens/s", "requests_per_s": "requests/s"}
_LOG_CHARACTERS = 600


def serve_facts(serve: ServeFacts, *, graded: bool) -> Iterable[Fact]:
    """Yield how the engine started, how far it is from the reference, and how it served."""
    yield Fact(name="separation", value=serve.apart)
    for start in serve.deployments:
        yield from _start_facts(start)
    if not graded:
        for fidelity in serve.fidelity:
            yield from _fidelity_facts(fidelity)
    yield from api_facts(serve, graded=graded)
    for traffic in dict.fromkeys(run.traffic for run in serve.loads):
        yield from _ratio_facts(serve, traffic)
    for arm in get_args(Arm):
        yield from _cost_facts(serve, arm)
    for run in serve.loads:
        yield from _run_facts(run)


def _cost_facts(serve: ServeFacts, arm: Arm) -> Iterable[Fact]:
    """Yield what an arm took of the machine, and its first requests' times, which do not count."""
    peaks = [s.peak_memory_mib for s in serve.deployments if s.arm == arm and s.peak_memory_mib]
    if peaks:
        value = round(max(peaks))
        yield Fact(name=f"peak memory {arm}", value=value, unit="MiB, all replicas")
    cold = [each for run in serve.loads if run.arm == arm for each in run.cold_ttft_ms]
    if cold:
        yield Fact(name=f"cold ttft_ms {arm}", value=_short(max(cold)), unit="ms, largest")


def _start_facts(start: DeploymentFacts) -> Iterable[Fact]:
    where = f"{start.arm}, round {start.restart + 1}"
    ready = "not ready" if start.ready_s is None else round(start.ready_s, 2)
    yield Fact(name=f"ready {where}", value=ready, unit="s")
    for incident in start.incidents[:4]:
        yield Fact(name=f"incident {where}", value=f"{incident.code}: {clip(incident.detail, 200)}")
    if start.healthy < start.replicas or start.incidents:
        said = quoted(start.log_tail[-_LOG_CHARACTERS:], _LOG_CHARACTERS)
        yield Fact(name=f"log {where}", value=said, unit="what the engine printed")
    if start.arm == "candidate" and start.restart == 0:
        shown = ", ".join(name for name, has in sorted(start.features.items()) if has)
        yield Fact(name="features", value=shown or "none")


def _fidelity_facts(fidelity: FidelityFacts) -> Iterable[Fact]:
    for table in fidelity.scores:
        if table.kl:
            yield Fact(name=f"KL {table.path}", value=_short(fmean(table.kl)), unit="nats, mean")
            floor = _short(fmean(table.floor_kl))
            yield Fact(name=f"KL floor {table.path}", value=floor, unit="nats, mean")
        if table.tie_gap_nats:
            worst = _short(max(table.tie_gap_nats))
            yield Fact(
                name=f"largest gap of a greedy token, {table.path}", value=worst, unit="nats"
            )


def _ratio_facts(serve: ServeFacts, traffic: str) -> Iterable[Fact]:
    for metric in get_args(Metric):
        ratio = ratio_of(serve, traffic, metric)
        if ratio.value <= 0:
            continue
        unit = _UNITS.get(metric, "ms")
        yield Fact(
            name=f"{metric} {traffic}",
            value=f"{_short(ratio.value)}x ({_short(ratio.low)} to {_short(ratio.high)}); "
            f"{_short(ratio.candidate)} against {_short(ratio.baseline)} {unit}",
            unit="ratio over baseline, 95 % interval, medians",
        )


def _run_facts(run: LoadFacts) -> Iterable[Fact]:
    where = f"{run.traffic}, {run.arm}, round {run.restart + 1}"
    if run.completed < run.asked or run.failure:
        said = f"; the client printed {quoted(run.failure, 300)}" if run.failure else ""
        told = f"{run.completed} of {run.asked} requests completed{said}"
        yield Fact(name=f"run {where}", value=told)


def _short(value: float) -> float:
    return float(f"{value:.4g}")
