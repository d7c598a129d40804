"""Profile device code: time it, then have Nsight Compute count what its hottest launches do.

The profiler and what it watches, our own launcher, run in the candidate's sandbox.
"""

import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import torch

from inferproof_remote import facts, job, ncu
from inferproof_remote.build_triton import NotCompiled
from inferproof_remote.cuda_driver import find_attributes
from inferproof_remote.expressions import evaluate
from inferproof_remote.gpu_arms import Candidate
from inferproof_remote.gpu_bottleneck import Bottleneck, Peaks, Work, inconclusive, verdict
from inferproof_remote.gpu_ceilings import measure_ceilings
from inferproof_remote.gpu_counters import Counters, counters_of
from inferproof_remote.gpu_process import device_plan, place_of, stage
from inferproof_remote.gpu_roofline import roofline
from inferproof_remote.grade import Order, built_candidate
from inferproof_remote.incidents import Incident
from inferproof_remote.inputs import InputMaker
from inferproof_remote.kernel import Dims, Kernel, parse_kernel
from inferproof_remote.launches import UnfitLaunch
from inferproof_remote.mounts import SandboxPlan
from inferproof_remote.numerics import copy_bytes
from inferproof_remote.profile_facts import NO_CEILINGS, not_built, not_measured, sizes
from inferproof_remote.sandbox import Completed, Sandbox
from inferproof_remote.sent import checked

Json: TypeAlias = dict[str, object]
_STEPS = 4
_TIME_S, _COUNT_S, _PRINT_S = 120.0, 300.0, 60.0
_MOST_HOT, _HOT_SHARE = 3, 0.8
_MOST_CSV_BYTES = 1 << 23
_REPORT, _CSV = "profile.ncu-rep", "profile.csv"
_RUN = (
    "import sys; sys.path.insert(0, {folder!r});"
    " from inferproof_remote.gpu_profiled import main; main({folder!r}, {mode!r})"
)
_TENSOR_DTYPES = frozenset(
    {"bf16", "f16", "f8e4m3", "f8e5m2", "f4e2m1x2", "ue4m3", "ue8m0"}  # scales go along
)
_NO_GPU = (
    "a profile of a {} candidate needs an NVIDIA GPU, and this target has none that torch can use;"
    " compile_kernel works without one"
)
_NO_LAUNCHES = "the manifest has no `launches`, so there is nothing that our launcher could launch"
_NO_NCU = (
    "Nsight Compute (ncu) is not on this target; a person installs it: apt-get install"
    " cuda-nsight-compute-13-0 from NVIDIA's repository, or the CUDA toolkit"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Times without the profiler; `floor_s` is of as many launches that only move one word."""

    seconds_per_call: float
    launches_s: tuple[float, ...]
    floor_s: float | None
    kernels: tuple[str, ...]
    device: Mapping[str, object]

    def hot(self) -> tuple[int, ...]:
        """Return the launches that most of the time goes to, the longest first."""
        order = sorted(range(len(self.launches_s)), key=lambda place: -self.launches_s[place])
        whole, seen = sum(self.launches_s), 0.0
        chosen: list[int] = []
        for place in order[:_MOST_HOT]:
            if seen >= _HOT_SHARE * whole:
                break
            chosen.append(place)
            seen += self.launches_s[place]
        return tuple(chosen)

    def hot_spots(self) -> list[Json]:
        """Return every launch with its share of the call, the longest first."""
        whole = sum(self.launches_s)
        spots = zip(self.kernels, (own / whole for own in self.launches_s), strict=True)
        return [
            {"name": name, "self_s": self.seconds_per_call * share, "calls": 1, "share": share}
            for name, share in sorted(spots, key=lambda spot: -spot[1])
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What the profiler gave by place of the launch; `why` says what kept it from that."""

    tool: str
    launches: Mapping[int, Counters] = field(default_factory=dict[int, Counters])
    why: str = ""


class Counting(Protocol):
    """What can be asked to count."""

    def count(self, program: Path, hot: Sequence[int], kept: Path) -> str:
        """Return what the profiler prints of the launches `hot`; the report goes to `kept`."""
        ...


class Bench:
    """The folder that is laid out for the sandbox, and what runs there."""

    def __init__(self, stack: ExitStack, order: Order, dims: Dims) -> None:
        self._order = order
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="profile-")))
        stage(self._folder, "gpu_profiled")
        candidate = Candidate(order, bytes(32), b"")
        candidate.compile_for([dims])
        self._asked, cubins = candidate.laid_out(dims)
        names = [f"{place}.cubin" for place in range(len(cubins))]
        for name, cubin in zip(names, cubins, strict=True):
            self._put(name, cubin)
        self._asked |= {"cubins": names, "hot": []}
        self._put_inputs(dims)

    def time(self) -> Timed | Incident:
        """Return what a call takes, or why it does not run."""
        self._put("asked.json", json.dumps(self._asked).encode())
        with Sandbox(device_plan(self._folder), name=job.sandbox_name("time")) as box:
            completed = box.run(self._argv("time"), timeout_s=_TIME_S)
        return read_timed(completed)

    def count(self, program: Path, hot: Sequence[int], kept: Path) -> str:
        """Return what the profiler prints of the launches `hot`; the report goes to `kept`."""
        self._put("asked.json", json.dumps(self._asked | {"hot": list(map(str, hot))}).encode())
        with tempfile.TemporaryDirectory(prefix="report-") as name:
            report = Path(name) / _REPORT
            plan = replace(self._plan(), writable=(Path(name),))
            argv = ncu.counting(program, report, self._argv("count"))
            with Sandbox(plan, name=job.sandbox_name("count")) as box:
                counted = box.run(argv, timeout_s=_COUNT_S, output_limit_bytes=1 << 20)
            said = counted.output.decode(errors="replace")
            said += "".join(f"\n{each.code}: {each.detail}" for each in counted.incidents)
            if not report.is_file() or report.is_symlink():
                return said
            report.chmod(0o644)
            (kept / _REPORT).write_bytes(report.read_bytes())
        plan = replace(self._plan(), read_only=(*ncu.homes(), kept / _REPORT))
        argv = ncu.printing(program, kept / _REPORT)
        with Sandbox(plan, name=job.sandbox_name("print")) as box:
            printed = box.run(argv, timeout_s=_PRINT_S, output_limit_bytes=_MOST_CSV_BYTES)
        text = printed.output.decode(errors="replace")
        (kept / _CSV).write_text(text, encoding="utf-8")
        return text + said

    def _plan(self) -> SandboxPlan:
        return replace(device_plan(self._folder), read_only=ncu.homes())

    def _argv(self, mode: str) -> list[str]:
        code = _RUN.format(folder=place_of(self._folder), mode=mode)
        return [sys.executable, "-I", "-B", "-c", code]

    def _put_inputs(self, dims: Dims) -> None:
        maker = InputMaker(bytes(32), self._order.kernel)
        for name, value in maker.make("profile", dims, "normal").items():
            data = bytearray(value.numel() * value.element_size())
            copy_bytes(value, memoryview(data))
            self._put(f"{name}.bin", data)

    def _put(self, name: str, data: bytes | bytearray) -> None:
        path = self._folder / name
        path.write_bytes(data)
        path.chmod(0o644)


def profile_device(job_dir: Path) -> Json:
    """Return the profile of a cuda or triton candidate, in the form of the server's evidence."""
    order, spec = _order(job_dir)
    dims = largest_shape(order.kernel)
    try:
        measured = _unable(order) or _measure(order, spec, dims)
    except NotCompiled as error:
        said = error.diagnostics[0].message if error.diagnostics else "no message"
        measured = Incident(error.code, None, said)
    except UnfitLaunch as error:
        measured = Incident("crashed", None, str(error))
    return {
        "dims": dims,
        "device": None,
        "ceilings": dict(NO_CEILINGS),
        **(not_measured(measured) if isinstance(measured, Incident) else measured),
        "bench": facts.bench(order.threads),
        "parent": order.manifest.get("parent"),
    }


def _unable(order: Order) -> Incident | None:
    if not torch.cuda.is_available() or find_attributes() is None:
        return Incident("infrastructure", None, _NO_GPU.format(order.manifest["language"]))
    if not order.manifest.get("launches"):
        return Incident("import_failed", None, _NO_LAUNCHES)
    return None


def _measure(order: Order, spec: Mapping[str, object], dims: Dims) -> Json | Incident:
    def report(done: int, what: str) -> None:
        job.report_progress(order.job_dir, done, _STEPS, what)

    report(0, "building")
    files = job.as_table(spec["candidate_files"], "candidate_files")
    strangers = checked(order.candidate, files).strangers
    built = built_candidate(order, spec["build_cache"])
    if strangers or not built["ok"]:
        return strangers[0] if strangers else not_built(built)
    with ExitStack() as stack:
        bench = Bench(stack, order, dims)
        report(1, "timing")
        timed = bench.time()
        if isinstance(timed, Incident):
            return timed
        report(2, "counting what the hottest launches do")
        found = counted(bench, timed, order.library.parent)
    report(3, "measuring this GPU's ceilings")
    attributes = job.as_table(timed.device["attributes"], "attributes")
    ceilings = measure_ceilings(int(job.as_number(attributes["l2_bytes"], "l2_bytes")))
    return told(order.kernel, dims, timed, found, ceilings)


def counted(bench: Counting, timed: Timed, kept: Path) -> Counted:
    """Return what the profiler counted, or why it did not."""
    program = ncu.find_ncu()
    if program is None:
        return Counted(tool="", why=_NO_NCU)
    tool = f"Nsight Compute {facts.version_line(str(program))}"
    hot = timed.hot()
    text = bench.count(program, hot, kept)
    launches = tuple(map(counters_of, ncu.parse_raw(text)))
    if len(launches) != len(hot):
        last = text.strip().splitlines()[-1:] or ["nothing"]
        why = ncu.trouble(text) or f"the profiler gave no counters; it says: {last[0][:200]}"
        return Counted(tool=tool, why=why)
    return Counted(tool=tool, launches=dict(zip(sorted(hot), launches, strict=True)))


def told(
    kernel: Kernel, dims: Dims, timed: Timed, found: Counted, ceilings: Mapping[str, object]
) -> Json:
    """Return everything measured, with the verdict on the hottest launch."""
    work = _work(kernel, dims, timed)
    bound = _verdict(work, timed, found, ceilings)
    return {
        "seconds_per_call": work.seconds,
        "bytes_per_s": work.bytes / work.seconds,
        "flops_per_s": work.flops / work.seconds,
        "hot_spots": timed.hot_spots(),
        "bottleneck": f"{bound.name}: {'; '.join(bound.proof)}",
        "incidents": [],
        "ceilings": dict(ceilings),
        "device": {
            "name": timed.device["name"],
            "driver": timed.device["driver"],
            "tool": found.tool,
            "launches": work.launches,
            "floor_s": work.floor_s,
            "bottleneck": asdict(bound),
            "roofline": _stands(work, timed, ceilings),
            "kernels": [_row(timed, place, each) for place, each in found.launches.items()],
        },
    }


def _verdict(
    work: Work, timed: Timed, found: Counted, ceilings: Mapping[str, object]
) -> Bottleneck:
    hottest = timed.hot()[0]
    if not found.launches:
        return inconclusive(found.why, kernel=timed.kernels[hottest])
    peaks = Peaks(
        memory_bytes_per_s=_number(ceilings, "memory_bytes_per_s"),
        flops_per_s=_number(ceilings, "flops_per_s"),
    )
    return verdict(found.launches[hottest], peaks, work)


def _stands(work: Work, timed: Timed, ceilings: Mapping[str, object]) -> Json | None:
    found = roofline(
        chip=str(timed.device["name"]),
        seconds=work.seconds,
        moved_bytes=work.bytes,
        flops=work.flops,
        ceilings=ceilings,
    )
    return None if found is None else asdict(found)


def _row(timed: Timed, place: int, counters: Counters) -> Json:
    return {
        "launch": place,
        "kernel": counters.kernel,
        "share": timed.launches_s[place] / sum(timed.launches_s),
        "counters": dict(counters.values),
        "stalls": dict(counters.stalls),
        "not_found": list(counters.not_found),
    }


def _work(kernel: Kernel, dims: Dims, timed: Timed) -> Work:
    floats = [each.dtype for each in kernel.inputs if each.has_families]
    return Work(
        seconds=timed.seconds_per_call,
        launches=len(timed.launches_s),
        floor_s=timed.floor_s,
        bytes=float(evaluate(kernel.roofline_bytes, dims)),
        flops=float(evaluate(kernel.roofline_flops, dims)),
        fits_tensor_cores=all(each in _TENSOR_DTYPES for each in floats),
    )


def largest_shape(kernel: Kernel) -> dict[str, int]:
    """Return the largest shape that is practised, or that the timed ranges reach."""
    timed = [{name: bounds[1] for name, bounds in each.items()} for each in kernel.timed]
    shapes = [kernel.order(_fixed(kernel) | dict(each)) for each in (*kernel.practice, *timed)]
    return max(shapes, key=lambda dims: math.prod(dims.values()))


def _fixed(kernel: Kernel) -> dict[str, int]:
    return {name: extent.high for name, extent in kernel.extents.items()}


def read_timed(completed: Completed) -> Timed | Incident:
    """Return what the last line of a timed run says, or why it says nothing."""
    if completed.incidents:
        return completed.incidents[0]
    last = completed.output.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
    try:
        table = job.as_table(json.loads(last[0]), "timed")
        if "failed" in table:
            return Incident("crashed", None, f"the device says {table['failed']}"[:300])
        floor = table["floor_s"]
        return Timed(
            seconds_per_call=_seconds(table["seconds_per_call"]),
            launches_s=tuple(_seconds(each) for each in cast("list[object]", table["launches_s"])),
            floor_s=None if floor is None else _seconds(floor),
            kernels=job.as_texts(table["kernels"], "kernels"),
            device=job.as_table(table["device"], "device"),
        )
    except (ValueError, KeyError, TypeError):
        return Incident("crashed", None, f"ended with {completed.rc}: {last[0][:300]}")


def _seconds(raw: object) -> float:
    value = job.as_number(raw, "seconds")
    if not 0 < value < math.inf:
        raise ValueError(f"{raw!r} is no time")
    return value


def _order(job_dir: Path) -> tuple[Order, Mapping[str, object]]:
    spec = job.read_job(job_dir).spec
    fixed = sizes(spec, "dims_fixed") | sizes(spec, "dims")
    order = Order(
        job_dir=job_dir,
        kernel=parse_kernel(spec["contract"], fixed=fixed, most=sizes(spec, "dims_max")),
        manifest=job.as_table(spec["manifest"], "manifest"),
        limits=job.as_table(spec["limits"], "limits"),
        graded=False,
        zoo=False,
        timing=False,
        arm=False,
        threads=int(job.as_number(spec["threads"], "threads")),
    )
    return order, spec


def _number(table: Mapping[str, object], name: str) -> float | None:
    return None if table[name] is None else job.as_number(table[name], name)
