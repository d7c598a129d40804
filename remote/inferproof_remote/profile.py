"""The `profile` verb: where a candidate's time goes on one practice shape; never judged."""

import json
import math
import pkgutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import cast

from inferproof_remote import build, facts, job
from inferproof_remote.bottleneck import CallCost, Speeds, bottleneck
from inferproof_remote.build_cpp import LIBRARY
from inferproof_remote.expressions import evaluate
from inferproof_remote.fairness import environment
from inferproof_remote.incidents import Incident
from inferproof_remote.kernel import Dims, Kernel, parse_kernel
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.profile_facts import NO_CEILINGS, not_built, not_measured, sizes
from inferproof_remote.sandbox import Completed, Sandbox

_RUN_S = 120.0
_DEVICE = ("cuda", "triton")
_STEPS = 3
_LABEL = "outside torch operators"
_C_FUNCTION = "; a C function is one hot spot, nothing inside it was sampled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What the runner measured: seconds of a call; and operators as (name, own seconds, calls)."""

    seconds_per_call: float
    total_s: float
    rows: tuple[tuple[str, float, int], ...]

    def hot_spots(self) -> list[dict[str, object]]:
        """Return the operators with their share of all the time that was sampled."""
        return [
            {"name": name, "self_s": own_s, "calls": calls, "share": min(1.0, own_s / self.total_s)}
            for name, own_s, calls in self.rows
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """The candidate of one job, on one shape."""

    job_dir: Path
    spec: Mapping[str, object]
    manifest: Mapping[str, object]
    kernel: Kernel
    dims: Dims
    threads: int

    @property
    def is_library(self) -> bool:
        return self.manifest["language"] != "python"

    @property
    def label(self) -> str:
        """What the profile calls the candidate's own time."""
        return str(self.manifest["entry"]) if self.is_library else _LABEL


def profile(job_dir: Path) -> dict[str, object]:
    """Return the candidate's hot spots and what bounds it, beside the machine's ceilings."""
    if job.as_table(job.read_job(job_dir).spec["manifest"], "manifest")["language"] in _DEVICE:
        return _on_device(job_dir)
    subject = _subject(job_dir)
    job.report_progress(job_dir, 0, _STEPS, "building")
    library = _library(subject)
    job.report_progress(job_dir, 1, _STEPS, "profiling")
    sampled = library if isinstance(library, Incident) else _sample(subject, library)
    job.report_progress(job_dir, 2, _STEPS, "measuring this machine's ceilings")
    ceilings = NO_CEILINGS if isinstance(sampled, Incident) else _ceilings(subject.threads)
    job.report_progress(job_dir, _STEPS, _STEPS, "profiled")
    return {
        "dims": dict(subject.dims),
        **_figures(subject, sampled, ceilings),
        "ceilings": dict(ceilings),
        "bench": facts.bench(subject.threads),
        "parent": subject.manifest.get("parent"),
    }


def _on_device(job_dir: Path) -> dict[str, object]:
    from inferproof_remote.gpu_profile import profile_device

    return profile_device(job_dir)


def read_sample(completed: Completed) -> Sampled | Incident:
    """Return what the runner's last line says, or why it says nothing."""
    if completed.incidents:
        return completed.incidents[0]
    lines = completed.output.decode(errors="replace").strip().splitlines() or ["no output"]
    if completed.rc != 0:
        return Incident("crashed", None, f"ended with exit code {completed.rc}: {lines[-1][:300]}")
    try:
        table = job.as_table(json.loads(lines[-1]), "sample")
        rows = tuple(_row(row) for row in cast("list[object]", table["rows"]))
        seconds = _positive(table["seconds_per_call"])
        return Sampled(seconds_per_call=seconds, total_s=_positive(table["total_s"]), rows=rows)
    except (ValueError, KeyError, TypeError):
        return Incident("not_measured", None, f"the profile did not finish: {lines[-1][:300]}")


def _subject(job_dir: Path) -> _Subject:
    spec = job.read_job(job_dir).spec
    fixed, most = sizes(spec, "dims_fixed"), sizes(spec, "dims_max")
    kernel = parse_kernel(spec["contract"], fixed=fixed, most=most)
    largest = max(kernel.practice, key=lambda dims: math.prod(dims.values()))
    return _Subject(
        job_dir=job_dir,
        spec=spec,
        manifest=job.as_table(spec["manifest"], "manifest"),
        kernel=kernel,
        dims=kernel.order({**largest, **sizes(spec, "dims"), **fixed}),
        threads=int(job.as_number(spec["threads"], "threads")),
    )


def _library(subject: _Subject) -> Path | Incident | None:
    """Return the built library, nothing for Python, or why there is none."""
    if not subject.is_library:
        return None
    cached = subject.spec.get("build_cache")
    if cached is not None:
        return subject.job_dir / str(job.as_table(cached, "build_cache")[LIBRARY])
    out_dir = subject.job_dir / "out" / "files"
    built = build.build(
        manifest=subject.manifest,
        source_dir=subject.job_dir / "in" / "candidate",
        out_dir=out_dir,
        limits=job.as_table(subject.spec["limits"], "limits"),
    )
    if built["ok"]:
        return out_dir / LIBRARY
    return not_built(built)


def _sample(subject: _Subject, library: Path | None) -> Sampled | Incident:
    """Return the profile that the candidate's own process makes of itself."""
    limits = job.as_table(subject.spec["limits"], "limits")
    snapshot = subject.job_dir / "in" / "candidate"
    plan = SandboxPlan(
        read_only=(snapshot,) if library is None else (snapshot, library.parent),
        memory_mib=int(job.as_number(limits["memory_mib"], "memory_mib")),
        tmp_mib=int(job.as_number(limits["tmp_mib"], "tmp_mib")),
        processes=int(job.as_number(limits["processes"], "processes")),
        env=environment(subject.threads),
    )
    script = (pkgutil.get_data("inferproof_remote", "profile_runner.py") or b"").decode()
    asked = json.dumps(_asked(subject, library))
    with Sandbox(plan, name=job.sandbox_name("profile")) as box:
        completed = box.run(
            [sys.executable, "-I", "-c", script, asked],
            timeout_s=_RUN_S,
            cwd=PurePosixPath(snapshot),
        )
    return read_sample(completed)


def _asked(subject: _Subject, library: Path | None) -> dict[str, object]:
    kernel, manifest = subject.kernel, subject.manifest
    raw = job.as_table(subject.spec["contract"], "contract")
    params = job.as_table(raw.get("params", {}), "params")
    dtypes = {name: job.as_table(param, name)["dtype"] for name, param in params.items()}
    return {
        "label": subject.label,
        "threads": subject.threads,
        "calls": int(job.as_number(subject.spec["calls"], "calls")),
        "library": None if library is None else str(library),
        "source": manifest["source"],
        "entry": manifest["entry"],
        "prepare": manifest.get("prepare"),
        "prepare_inputs": list(kernel.prepare),
        "params": [[name, dtypes[name], value] for name, value in kernel.params.items()],
        "dims": dict(subject.dims),
        "tensors": [
            {
                "name": each.name,
                "dtype": each.dtype,
                "shape": each.extents(subject.dims),
                "span": each.span and [evaluate(bound, subject.dims) for bound in each.span],
            }
            for each in (*kernel.inputs, *kernel.outputs)
        ],
    }


def _ceilings(threads: int) -> Mapping[str, object]:
    import torch

    from inferproof_remote.ceilings import measure_ceilings

    torch.set_num_threads(threads)
    return measure_ceilings(facts.caches_bytes())


def _figures(
    subject: _Subject, sampled: Sampled | Incident, ceilings: Mapping[str, object]
) -> dict[str, object]:
    """Return the measured part of the facts; an incident leaves zeros and says why."""
    if isinstance(sampled, Incident):
        return not_measured(sampled)
    cost = CallCost(
        seconds=sampled.seconds_per_call,
        bytes=float(evaluate(subject.kernel.roofline_bytes, subject.dims)),
        flops=float(evaluate(subject.kernel.roofline_flops, subject.dims)),
    )
    said = bottleneck(cost, _speeds(ceilings))
    return {
        "seconds_per_call": cost.seconds,
        "bytes_per_s": cost.bytes / cost.seconds,
        "flops_per_s": cost.flops / cost.seconds,
        "hot_spots": sampled.hot_spots(),
        "bottleneck": said + _C_FUNCTION if subject.is_library else said,
        "incidents": [],
    }


def _speeds(ceilings: Mapping[str, object]) -> Speeds:
    cache_bytes = _number(ceilings, "last_level_cache_bytes")
    return Speeds(
        memory_bytes_per_s=_number(ceilings, "memory_bytes_per_s"),
        cache_bytes_per_s=_number(ceilings, "cache_bytes_per_s"),
        flops_per_s=_number(ceilings, "flops_per_s"),
        last_level_cache_bytes=None if cache_bytes is None else int(cache_bytes),
    )


def _number(table: Mapping[str, object], name: str) -> float | None:
    return None if table[name] is None else job.as_number(table[name], name)


def _row(raw: object) -> tuple[str, float, int]:
    match raw:
        case [str() as name, int() | float() as self_s, int() as calls]:
            return name[:200], max(0.0, job.as_number(self_s, "self_s")), calls
        case _:
            raise ValueError(f"{raw!r} is no row of a profile")


def _positive(raw: object) -> float:
    value = job.as_number(raw, "seconds")
    if not 0 < value < math.inf:
        raise ValueError(f"{raw!r} is no time")
    return value
