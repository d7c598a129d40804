"""The few facts of a piece of evidence that a model needs to see at once, with units."""

from collections.abc import Iterable, Sequence

from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.evidence import (
    BuildFacts,
    CallFacts,
    Evidence,
    GradeFacts,
    ProfileFacts,
    RunFacts,
)
from inferproof.core.lease_facts import LeaseFacts
from inferproof.core.values import Purpose
from inferproof.gates.intervals import Speed, is_complete, speeds
from inferproof.tools.profile_facts import device_facts, launch_rows
from inferproof.tools.results import Fact, clip
from inferproof.tools.search_facts import search_facts
from inferproof.tools.serve_facts import serve_facts

_INCIDENTS = 8


def facts_of(evidence: Evidence) -> tuple[Fact, ...]:
    """Return the facts to show; a graded check shows speed and counts only."""
    return (*_measured(evidence), *(_lease_facts(evidence.lease) if evidence.lease else ()))


def _lease_facts(lease: LeaseFacts) -> tuple[Fact, ...]:
    return (
        Fact(name="GPUs held", value=", ".join(lease.gpus) or "none"),
        Fact(name="waited for them", value=round(lease.waited_s, 3), unit="s"),
        Fact(name="charged", value=round(lease.accelerator_s, 3), unit="accelerator s"),
    )


def _measured(evidence: Evidence) -> tuple[Fact, ...]:
    if evidence.grade is not None:
        return tuple(_grade_facts(evidence.grade, practice=evidence.purpose is Purpose.PRACTICE))
    if evidence.serve is not None:
        return tuple(serve_facts(evidence.serve, graded=evidence.purpose is Purpose.GRADED))
    if evidence.search is not None:
        return tuple(search_facts(evidence.search))
    if evidence.profile is not None:
        return tuple(_profile_facts(evidence.profile))
    if evidence.run is not None:
        return tuple(_run_facts(evidence.run))
    if evidence.deploy is not None:
        return deploy_facts(evidence.deploy)
    return tuple(_build_facts(evidence.build)) if evidence.build is not None else ()


def rows_of(evidence: Evidence) -> tuple[str, ...]:
    """Return the lines to show: compiler messages, hot spots, or the output's tail."""
    if evidence.run is not None:
        return tuple(clip(evidence.run.output_tail, 4000).splitlines())
    if evidence.profile is not None:
        spots = (
            f"{spot.share:.1%} {spot.self_s * 1e6:.1f} us in {spot.calls} calls: "
            f"{clip(spot.name, 120)}"
            for spot in evidence.profile.hot_spots
        )
        device = evidence.profile.device
        return (*(launch_rows(device) if device else ()), *spots)
    build = evidence.grade.build if evidence.grade is not None else evidence.build
    return diagnostics_of(build) if build is not None else ()


def diagnostics_of(build: BuildFacts) -> tuple[str, ...]:
    """Return compiler messages as `file:line: severity: message`, errors first."""
    order = {"error": 0, "warning": 1, "note": 2}
    return tuple(
        f"{d.file}:{d.line if d.line is not None else '?'}: {d.severity}: {clip(d.message, 240)}"
        for d in sorted(build.diagnostics, key=lambda d: order[d.severity])
    )


def deploy_facts(deploy: DeployFacts) -> tuple[Fact, ...]:
    """Return where a deployment answers, how many replicas do, and what went wrong with them."""
    facts = [Fact(name="endpoint", value=deploy.endpoint or "none: nothing serves yet")]
    for one in deploy.deployments:
        facts += [
            Fact(name="replicas", value=one.replicas),
            Fact(name="healthy", value=one.healthy),
        ]
        if one.ready_s is not None:
            facts.append(Fact(name="ready", value=round(one.ready_s, 3), unit="s"))
        facts += [
            Fact(name="incident", value=f"{incident.code}: {clip(incident.detail, 300)}")
            for incident in one.incidents[-_INCIDENTS:]
        ]
    return tuple(facts)


def dims_text(dims: dict[str, int]) -> str:
    """Return dims as `tokens=128 hidden=4096`."""
    return " ".join(f"{name}={size}" for name, size in dims.items())


def _build_facts(build: BuildFacts) -> Iterable[Fact]:
    yield Fact(name="compiler", value=clip(build.compiler, 120))
    yield Fact(name="compile_time", value=round(build.seconds, 4), unit="s")
    for resource in build.resources:
        where = f"{resource.kernel} {resource.arch}"
        if resource.registers is not None:
            yield Fact(name=f"registers {where}", value=resource.registers, unit="per thread")
        if resource.shared_bytes is not None:
            yield Fact(name=f"shared_memory {where}", value=resource.shared_bytes, unit="bytes")
        if resource.spill_store_bytes is not None:
            yield Fact(name=f"spill_stores {where}", value=resource.spill_store_bytes, unit="bytes")
    if build.help:
        yield Fact(name="help", value=clip(build.help, 600))


def _grade_facts(grade: GradeFacts, *, practice: bool) -> Iterable[Fact]:
    bench = grade.bench
    yield Fact(name="separation", value=bench.separation)
    yield Fact(name="sandbox", value=bench.sandbox)
    yield Fact(name="freezer", value=bench.freezer)
    yield Fact(name="threads", value=bench.threads)
    yield Fact(name="calls", value=len(grade.calls))
    if grade.timed and all(map(is_complete, grade.timed)):
        for speed in speeds(grade):
            yield from _speed_facts(speed)
    for incident in grade.incidents[:8]:
        where = f" in call {incident.call}" if incident.call is not None else ""
        yield Fact(name=f"incident{where}", value=f"{incident.code}: {clip(incident.detail, 200)}")
    if practice:
        yield from _worst_calls(grade.calls)


def _speed_facts(speed: Speed) -> Iterable[Fact]:
    where = dims_text(speed.dims)
    yield Fact(
        name=f"ratio {where}", value=round(speed.ratio, 4), unit=f"x over {speed.best_baseline}"
    )
    yield Fact(
        name=f"ratio_interval {where}",
        value=f"{speed.low:.4f} to {speed.high:.4f}",
        unit="95 % interval",
    )
    yield Fact(name=f"candidate {where}", value=_micro(speed.candidate_s), unit="us")
    yield Fact(
        name=f"{speed.best_baseline} {where}", value=_micro(speed.best_baseline_s), unit="us"
    )


def _worst_calls(calls: Sequence[CallFacts]) -> Iterable[Fact]:
    rated = [
        (error.rms_ratio, call, name, error.worst_tile)
        for call in calls
        for name, error in call.outputs.items()
        if error.rms_ratio is not None
    ]
    for ratio, call, name, tile in sorted(rated, key=lambda item: -item[0])[:3]:
        yield Fact(
            name=f"error of {name} in call {call.index} ({call.family}, {dims_text(call.dims)}, "
            f"worst tile {clip(tile, 60)})",
            value=round(ratio, 4),
            unit="yardstick RMS errors",
        )


def _profile_facts(profile: ProfileFacts) -> Iterable[Fact]:
    yield Fact(name="shape", value=dims_text(profile.dims))
    if profile.seconds_per_call is not None:
        yield Fact(name="time_per_call", value=_micro(profile.seconds_per_call), unit="us")
    if profile.bytes_per_s is not None:
        yield Fact(name="bandwidth", value=round(profile.bytes_per_s / 1e9, 3), unit="GB/s")
    if profile.flops_per_s is not None:
        yield Fact(name="operations", value=round(profile.flops_per_s / 1e9, 3), unit="GFLOP/s")
    ceilings = profile.ceilings
    if ceilings.memory_bytes_per_s is not None:
        yield Fact(
            name="memory_ceiling", value=round(ceilings.memory_bytes_per_s / 1e9, 3), unit="GB/s"
        )
    if ceilings.flops_per_s is not None:
        yield Fact(
            name="operations_ceiling", value=round(ceilings.flops_per_s / 1e9, 3), unit="GFLOP/s"
        )
    device = profile.device
    bound = profile.bottleneck if device is None else device.bottleneck.name
    yield Fact(name="bottleneck", value=clip(bound, 200))
    if device is not None:
        yield from device_facts(device)
    yield Fact(name="separation", value=profile.bench.separation)


def _run_facts(run: RunFacts) -> Iterable[Fact]:
    yield Fact(name="exit_code", value=run.rc if run.rc is not None else "none: it did not end")
    yield Fact(name="time", value=round(run.seconds, 3), unit="s")
    yield Fact(name="output", value=run.output_bytes, unit="bytes")
    for incident in run.incidents[:8]:
        yield Fact(name="incident", value=f"{incident.code}: {clip(incident.detail, 200)}")


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 3)
