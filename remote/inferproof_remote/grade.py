"""The `grade` verb: check and time one candidate against one contract.

What does not need torch comes first, so that a candidate that does not build is refused at once.
"""

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from inferproof_remote import build, build_cuda, gpu_ahead, job
from inferproof_remote.gpu_process import DeviceProcess
from inferproof_remote.incidents import Incident
from inferproof_remote.kernel import Kernel, parse_kernel
from inferproof_remote.sent import CHECKED, checked
from inferproof_remote.workshop import digest_file

BITS = 256
_LIBRARY = "candidate.so"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A grade job as values."""

    job_dir: Path
    kernel: Kernel
    manifest: Mapping[str, object]
    limits: Mapping[str, object]
    graded: bool
    zoo: bool
    timing: bool
    arm: bool
    threads: int
    sanitize: bool = False

    @property
    def candidate(self) -> Path:
        """Folder of the snapshot, as it was when its digests were checked."""
        return self.job_dir / CHECKED / "candidate"

    @property
    def contract(self) -> Path:
        """Folder of the contract, as it was when its digests were checked."""
        return self.job_dir / CHECKED / "contract"

    @property
    def library(self) -> Path:
        """The built candidate, if it is a library."""
        return self.job_dir / "out" / "files" / _LIBRARY

    def limit(self, name: str) -> float:
        """Return one limit of the campaign."""
        return job.as_number(self.limits[name], name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What is known before the first call.

    The digests are of the bytes that are used, by the rules that the server names them by.
    `baselines` has been loading since before the candidate was built, on a GPU that is timed.
    """

    bits: bytes
    candidate_seen: str
    contract_seen: str
    build: dict[str, object]
    strangers: tuple[Incident, ...]
    baselines: DeviceProcess | None = None


Grading = Callable[[Order, Begun], dict[str, object]]


def grade(job_dir: Path) -> dict[str, object]:
    """Return the facts of `job_dir`'s job, in the form of the server's `GradeFacts`."""
    spec = job.read_job(job_dir).spec
    order = _order(job_dir, spec)
    candidate = checked(order.candidate, job.as_table(spec["candidate_files"], "candidate_files"))
    contract = checked(order.contract, job.as_table(spec["contract_files"], "contract_files"))
    with ExitStack() as stack:
        on_gpu = order.manifest["language"] in ("cuda", "triton")
        strangers = (*candidate.strangers, *contract.strangers)
        early = on_gpu and order.timing and not strangers
        baselines = _ahead(stack, order) if early else None
        built = built_candidate(order, spec["build_cache"])
        # Drawn only now: the candidate was committed before this job existed, and is built.
        begun = Begun(
            bits=os.urandom(BITS // 8),
            candidate_seen=job.digest_json(
                {"manifest": order.manifest, "files": candidate.digests}
            ),
            contract_seen=job.digest_json(contract.digests),
            build=built,
            strangers=strangers,
            baselines=baselines,
        )
        # The grader's own threads must not spin beside the candidate; read as torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        module = "gpu_grade" if on_gpu else "grading"
        run = cast("Grading", importlib.import_module(f"inferproof_remote.{module}").run)
        return run(order, begun)


def _ahead(stack: ExitStack, order: Order) -> DeviceProcess | None:
    """Start the baselines' process, if there is a GPU that they could run on."""
    if build_cuda.native_arch() is None:
        return None
    return gpu_ahead.start_baselines(
        *(stack, order.kernel, order.contract), job_dir=order.job_dir, graded=order.graded
    )


def _order(job_dir: Path, spec: Mapping[str, object]) -> Order:
    whole = {name: job.as_table(spec[name], name) for name in ("dims_fixed", "dims_max")}
    sizes = {
        key: {name: int(job.as_number(size, name)) for name, size in table.items()}
        for key, table in whole.items()
    }
    kernel = parse_kernel(spec["contract"], fixed=sizes["dims_fixed"], most=sizes["dims_max"])
    if spec.get("rounds") is not None:
        kernel = replace(kernel, pairs=int(job.as_number(spec["rounds"], "rounds")))
    return Order(
        job_dir=job_dir,
        kernel=kernel,
        manifest=job.as_table(spec["manifest"], "manifest"),
        limits=job.as_table(spec["limits"], "limits"),
        graded=spec["purpose"] == "graded",
        zoo=spec["shapes_scale"] == "zoo",
        timing=spec["timing"] is True,
        arm=spec["arm"] is True,
        sanitize=spec.get("sanitize") is True,
        threads=int(job.as_number(spec["threads"], "threads")),
    )


def built_candidate(order: Order, cache: object) -> dict[str, object]:
    """Return the facts of a build, made now unless an earlier one's files came with the job."""
    out = order.library.parent
    if cache is None:
        return build.build(
            manifest=order.manifest,
            source_dir=order.candidate,
            out_dir=out,
            limits=order.limits,
            archs=_archs(order),
        )
    out.mkdir(parents=True, exist_ok=True)
    digests: dict[str, str] = {}
    for name, place in job.as_table(cache, "build_cache").items():
        source = order.job_dir / str(place)
        (out / name).write_bytes(source.read_bytes())
        digests[name] = digest_file(out / name)
    return {
        "language": order.manifest["language"],
        "ok": True,
        "code": "accepted",
        "compiler": "earlier build of the same sources",
        "command": [],
        "seconds": 0.0,
        "artefacts": digests,
        "cache_key": hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest(),
    }


def _archs(order: Order) -> tuple[str, ...]:
    """Return the one architecture that is here, if that is what the candidate is built for."""
    native = build_cuda.native_arch() if order.manifest["language"] == "cuda" else None
    return () if native is None else (native,)
