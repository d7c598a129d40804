"""Evidence: what a job measured, as values that a gate can judge again at any time.

Numbers carry their unit in the name. `None` means not measured, which never passes.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from inferproof.core.deploy_facts import DeployFacts
from inferproof.core.gpu_facts import GpuFacts, MachineCode
from inferproof.core.lease_facts import LeaseFacts
from inferproof.core.machine import Machine
from inferproof.core.profile_facts import DeviceProfile
from inferproof.core.queue_facts import QueueStart
from inferproof.core.search_facts import SearchFacts
from inferproof.core.serving_facts import EarlierTries, ServeFacts
from inferproof.core.values import (
    Digest,
    Incident,
    JobStatus,
    NonNegative,
    Purpose,
    Reason,
    Value,
)


class Diagnostic(Value):
    """One compiler message."""

    file: str
    line: int | None
    severity: Literal["error", "warning", "note"]
    message: str


class KernelResources(Value):
    """What ptxas reports for one CUDA kernel on one architecture, and its disassembled code."""

    arch: str
    kernel: str
    registers: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    shared_bytes: int | None
    code: MachineCode | None = None


class Library(Value):
    """A library that a candidate's sources name, and what is known of it on the bench."""

    name: str
    package: str | None = None
    version: str | None = None
    licence: str | None = None


class BuildFacts(Value):
    """How a build went. `artefacts` maps file name to digest in the object store.

    `libraries` are those the sources use; None is evidence from before they were recorded.
    """

    language: Literal["cpp", "cuda", "python", "triton"]
    ok: bool
    code: Reason
    compiler: str
    command: tuple[tuple[str, ...], ...]
    seconds: NonNegative
    diagnostics: tuple[Diagnostic, ...] = ()
    resources: tuple[KernelResources, ...] = ()
    artefacts: dict[str, Digest] = {}
    cache_key: Digest
    help: str = ""
    libraries: tuple[Library, ...] | None = None


class OutputError(Value):
    """How far one output is from the float64 reference, in units of the yardstick's error.

    `rms_ratio` and `p999_ratio` are the worst over tiles and overall; `None` is not measured.
    `stale_of` is the earlier call whose expected output this equals, if any. `carried` counts the
    elements that rounding to nearest carries away from zero, `cut` those of them that came out
    nearer to zero than they are. `tile_squares` adds up, over the `tiles` in which rounding shows,
    the squares of their RMS error over that of an honest rounding.
    """

    rms_ratio: NonNegative | None
    p999_ratio: NonNegative | None
    nan_mismatches: int
    unwritten: int
    bad_share: Annotated[float, Field(ge=0, le=1)]
    worst_tile: str
    stale_of: int | None = None
    carried: Annotated[int, Field(ge=0)] | None = None
    cut: Annotated[int, Field(ge=0)] | None = None
    tiles: Annotated[int, Field(ge=0)] | None = None
    tile_squares: NonNegative | None = None


class CallFacts(Value):
    """One call of the candidate. `seconds` runs from thaw to confirmed freeze.

    `same_bits` says of a repeat whether it gave what the first call gave, to the bit. `launch`
    counts the candidate's processes.
    """

    index: int
    phase: Literal["numerics", "near_duplicate", "repeat", "timed"]
    dims: dict[str, int]
    family: str
    seconds: NonNegative | None
    checked: bool
    outputs: dict[str, OutputError] = {}
    same_bits: bool | None = None
    launch: Annotated[int, Field(ge=0)] = 0


class TimedPair(Value):
    """One round of interleaved calls on one shape: seconds of each arm, in the order run."""

    candidate_s: NonNegative
    baselines_s: dict[str, NonNegative]
    null_s: NonNegative


class TimedWorkload(Value):
    """All rounds on one shape, with the least bytes and operations the contract asks for.

    On a GPU each shape is timed twice: with the cache `warm` from the call before, and `cold`.
    """

    dims: dict[str, int]
    cache: Literal["as_found", "warm", "cold"] = "as_found"
    pairs: tuple[TimedPair, ...]
    bytes: NonNegative
    flops: NonNegative


class Ceilings(Value):
    """What this machine was measured to reach in the same run."""

    memory_bytes_per_s: NonNegative | None
    cache_bytes_per_s: NonNegative | None
    flops_per_s: NonNegative | None
    last_level_cache_bytes: int | None


class MutantFacts(Value):
    """A known-bad implementation, judged like a candidate: its outputs on each drawn call."""

    name: str
    calls: tuple[CallFacts, ...]


class Bench(Value):
    """How the candidate was kept apart, and on what machine; `nice` is every arm's priority."""

    separation: Literal["separate-user", "container", "shared-account"]
    sandbox: str
    freezer: Literal["cgroup-v2", "cgroup-v1", "sigstop"]
    cpu_model: str
    cores: int
    threads: int
    nice: int = 0
    versions: dict[str, str]


class GradeFacts(Value):
    """All that `check_numerics` measured. `bits` were drawn after the candidate was committed.

    `absent_baselines` names baselines of the contract that cannot run on this bench, and why.
    """

    bits: Digest
    candidate_seen: Digest
    contract_seen: Digest
    bench: Bench
    build: BuildFacts
    incidents: tuple[Incident, ...]
    calls: tuple[CallFacts, ...]
    timed: tuple[TimedWorkload, ...]
    absent_baselines: dict[str, str] = {}
    ceilings: Ceilings
    mutants: tuple[MutantFacts, ...] | None
    gpu: GpuFacts | None = None

    @property
    def apart(self) -> str:
        """How the candidate was kept apart; empty when nobody said."""
        return f"{self.bench.separation} ({self.bench.sandbox})" if self.bench.sandbox else ""


class HotSpot(Value):
    """One row of a profile."""

    name: str
    self_s: NonNegative
    calls: int
    share: Annotated[float, Field(ge=0, le=1)]


class ProfileFacts(Value):
    """Where the time goes; practice only, never judged.

    `device` is there for device code alone. `parent` is the candidate that this one names as its.
    """

    dims: dict[str, int]
    seconds_per_call: NonNegative | None
    bytes_per_s: NonNegative | None
    flops_per_s: NonNegative | None
    ceilings: Ceilings
    hot_spots: tuple[HotSpot, ...]
    bottleneck: str
    incidents: tuple[Incident, ...]
    bench: Bench
    device: DeviceProfile | None = None
    parent: Digest | None = None


class RunFacts(Value):
    """One command the agent ran in the sandbox; practice only."""

    argv: tuple[str, ...]
    rc: int | None
    seconds: NonNegative
    output_tail: str
    output_bytes: int
    incidents: tuple[Incident, ...] = ()


class Evidence(Value):
    """The raw outcome of a job, stored whole and named by its digest in the ledger.

    `seal` is the seal entry it was measured under; `arming` is the earlier evidence in which the
    contract's mutants were refused, when they did not run in this job. `machine` is there for a
    target elsewhere. `starts` are the times that a cluster's queue started it.
    """

    schema_version: Literal[1] = 1
    kind: Literal["compile", "grade", "profile", "run", "serve", "deploy", "search"]
    job_id: str
    status: JobStatus
    purpose: Purpose
    target: str
    candidate: Digest | None
    contract: Digest | None
    seal: Digest | None = None
    arming: Digest | None = None
    started_at: AwareDatetime
    ended_at: AwareDatetime
    command: tuple[str, ...]
    remote_digest: Digest
    artefacts: dict[str, Digest] = {}
    build: BuildFacts | None = None
    grade: GradeFacts | None = None
    profile: ProfileFacts | None = None
    run: RunFacts | None = None
    serve: ServeFacts | None = None
    deploy: DeployFacts | None = None
    lease: LeaseFacts | None = None
    starts: tuple[QueueStart, ...] = ()
    search: SearchFacts | None = None
    earlier: EarlierTries | None = None
    machine: Machine | None = None
    failure: str = ""
    log_tail: str = ""
