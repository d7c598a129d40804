"""What one thing bounds a kernel on a GPU, from counters: a pure function with its proof.

The rules are tried in the order of `_RULES`. What only another design can cure comes first (many
launches, idle tensor cores), then work that is wasted, then what is simply busy, then what idles.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from inferproof_remote.gpu_counters import Counters

# Half of a call spent on launches that do nothing: fewer launches gain more than any better kernel.
_LAUNCH_SHARE = 0.5
# Work that needs more than a tenth of what the tensor cores do per byte is beyond other units.
_TENSOR_SHARE = 0.1
# Without one tensor instruction this counter still reads up to 0.5 %.
_TENSOR_IDLE_PCT = 1.0
# A third wasted: what is left would run at most 1.5 times as fast at that level.
_WASTE = 1 / 3
# A unit that is busy this much of the time is what the kernel waits for; 100 % is not reached.
_BUSY_PCT = 60.0
_HALF_BUSY_PCT = 50.0
_CACHE_BUSY_PCT = 80.0
# Warps that wait for one unit this share of their time are held up by it.
_HELD_UP = 0.3
# A quarter of the warps, 16 of 64, is about what hides the latency of memory with wide loads.
_FEW_WARPS_PCT = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What this machine was measured to reach; `None` is not measured."""

    memory_bytes_per_s: float | None
    flops_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One call: its time, its launches, and the least that the contract asks for.

    `floor_s` is the time of as many launches that only read and write one word.
    """

    seconds: float
    launches: int
    floor_s: float | None
    bytes: float
    flops: float
    fits_tensor_cores: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """The one thing that bounds a kernel, the numbers that prove it, and what is worth trying."""

    name: str
    kernel: str
    proof: tuple[str, ...]
    levers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    counters: Counters
    peaks: Peaks
    work: Work

    def __getitem__(self, name: str) -> float:
        return self.counters.values[name]


@dataclass(frozen=True, slots=True)
class _Missing:
    names: tuple[str, ...]


_Answer: TypeAlias = Bottleneck | _Missing | None
_Rule: TypeAlias = Callable[[_Case], _Answer]


def verdict(counters: Counters, peaks: Peaks, work: Work) -> Bottleneck:
    """Return the one thing that bounds a launch; `inconclusive` if a needed counter is missing."""
    case = _Case(counters=counters, peaks=peaks, work=work)
    for rule in _RULES:
        answer = rule(case)
        if isinstance(answer, Bottleneck):
            return answer
        if isinstance(answer, _Missing):
            what = f"not found: {', '.join(answer.names)}"
            return inconclusive(
                f"{what}; this GPU or this version of Nsight Compute does not give it: install"
                " a newer one, or open profile.ncu-rep",
                kernel=counters.kernel,
            )
    return _found(case, "latency", *_waits(counters))


def inconclusive(why: str, *, kernel: str = "") -> Bottleneck:
    """Return that nothing is proven, and why."""
    return Bottleneck(name="inconclusive", kernel=kernel, proof=(why,))


def _launch(case: _Case) -> _Answer:
    work = case.work
    if work.floor_s is None:
        return _Missing(("the time of an empty launch",))
    if work.floor_s < _LAUNCH_SHARE * work.seconds:
        return None
    return _found(
        case,
        "launch",
        f"{work.launches} launches in {work.seconds * 1e6:.1f} us;"
        f" as many that move one word take {work.floor_s * 1e6:.1f} us",
        *_optional(case, "blocks", "blocks of the hottest: {:.0f} (launch__grid_size)"),
    )


def _tensor_idle(case: _Case) -> _Answer:
    work, peaks = case.work, case.peaks
    if not work.fits_tensor_cores or not peaks.flops_per_s or not peaks.memory_bytes_per_s:
        return None
    ridge = peaks.flops_per_s / peaks.memory_bytes_per_s
    if work.flops < _TENSOR_SHARE * ridge * work.bytes:
        return None
    absent = case.counters.absent("tensor_pct")
    if absent:
        return _Missing(absent)
    if case["tensor_pct"] >= _TENSOR_IDLE_PCT:
        return None
    return _found(
        case,
        "tensor_idle",
        f"tensor pipes busy {case['tensor_pct']:.1f} % (sm__pipe_tensor_cycles_active)",
        f"{work.flops / work.bytes:.0f} operations a byte of work, the ridge is at {ridge:.0f}",
    )


def _waste(case: _Case) -> _Answer:
    """Return the greatest waste at a level that is busy, or that warps wait for."""
    needed = ("global_sectors", "global_sectors_ideal", "local_sectors", "shared_wavefronts")
    busy = ("shared_wavefronts_ideal", "dram_pct", "l2_pct", "l1_pct")
    absent = case.counters.absent(*needed, *busy)
    if absent:
        return _Missing(absent)
    shares = {
        name: share
        for name, share in (
            ("spills", _spilled(case)),
            ("uncoalesced", _excess(case, "global_sectors")),
            ("bank_conflicts", _excess(case, "shared_wavefronts")),
        )
        if share >= _WASTE and _hurts(case, name)
    }
    if not shares:
        return None
    name = max(shares, key=lambda each: shares[each])
    return _found(case, name, *_WASTE_PROOFS[name](case))


def _spilled(case: _Case) -> float:
    whole = case["local_sectors"] + case["global_sectors"]
    return case["local_sectors"] / whole if whole else 0.0


def _excess(case: _Case, name: str) -> float:
    whole = case[name]
    return (whole - case[f"{name}_ideal"]) / whole if whole else 0.0


def _hurts(case: _Case, name: str) -> bool:
    stalled = case.counters.stalled
    if name == "bank_conflicts":
        held_up = stalled("mio_throttle", "short_scoreboard")
        return case["l1_pct"] >= _HALF_BUSY_PCT or held_up >= _HELD_UP
    busiest = max(case["dram_pct"], case["l2_pct"], case["l1_pct"])
    held_up = stalled("long_scoreboard", "lg_throttle", "drain")
    return busiest >= _HALF_BUSY_PCT or held_up >= _HELD_UP


def _spill_proof(case: _Case) -> Sequence[str]:
    return (
        f"{_count(case['local_sectors'])} sectors of local memory beside"
        f" {_count(case['global_sectors'])} of global (l1tex__t_sectors_pipe_lsu_mem_local)",
        *_optional(case, "registers", "{:.0f} registers a thread (launch__registers_per_thread)"),
    )


def _sector_proof(case: _Case) -> Sequence[str]:
    return (
        f"{_count(case['global_sectors'])} sectors asked for where"
        f" {_count(case['global_sectors_ideal'])} hold the data"
        " (memory_l2_theoretical_sectors_global, _ideal)",
        f"L2 busy {case['l2_pct']:.0f} %, DRAM {case['dram_pct']:.0f} %",
    )


def _bank_proof(case: _Case) -> Sequence[str]:
    return (
        f"{_count(case['shared_wavefronts'])} shared-memory wavefronts where"
        f" {_count(case['shared_wavefronts_ideal'])} would do"
        " (memory_l1_wavefronts_shared, _ideal)",
        f"L1 and shared memory busy {case['l1_pct']:.0f} %",
    )


_WASTE_PROOFS: Mapping[str, Callable[[_Case], Sequence[str]]] = {
    "spills": _spill_proof,
    "uncoalesced": _sector_proof,
    "bank_conflicts": _bank_proof,
}


def _memory(case: _Case) -> _Answer:
    absent = case.counters.absent("dram_bytes", "duration_ns")
    if absent:
        return _Missing(absent)
    rate = 1e9 * case["dram_bytes"] / case["duration_ns"] if case["duration_ns"] else 0.0
    ceiling = case.peaks.memory_bytes_per_s
    reached_pct = max(case["dram_pct"], 100 * rate / ceiling if ceiling else 0.0)
    of = "" if not ceiling else f", {100 * rate / ceiling:.0f} % of what this GPU reaches"
    said = f"DRAM moves {rate / 1e12:.2f} TB/s{of} (dram__bytes)"
    traffic = case["dram_bytes"] / case.work.bytes if case.work.bytes else 0.0
    if reached_pct >= _BUSY_PCT:
        moved = f"{traffic:.2f} times the bytes of the contract"
        return _found(case, "memory", said, moved if case.work.launches == 1 else "")
    for level, name in (("L2", "l2_pct"), ("L1 and shared memory", "l1_pct")):
        if case[name] >= _CACHE_BUSY_PCT:
            return _found(case, "memory", f"{level} busy {case[name]:.0f} %", said)
    return None


def _compute(case: _Case) -> _Answer:
    absent = case.counters.absent("tensor_pct", "sm_pct")
    if absent:
        return _Missing(absent)
    if case["tensor_pct"] >= _BUSY_PCT:
        said = f"tensor pipes busy {case['tensor_pct']:.0f} % (sm__pipe_tensor_cycles_active)"
        return _found(case, "tensor", said)
    if case["sm_pct"] >= _BUSY_PCT:
        said = f"multiprocessors' busiest unit {case['sm_pct']:.0f} % (sm__throughput)"
        return _found(case, "compute", said)
    return None


def _occupancy(case: _Case) -> _Answer:
    absent = case.counters.absent("occupancy_pct", "blocks", "multiprocessors")
    if absent:
        return _Missing(absent)
    few_blocks = case["blocks"] < case["multiprocessors"] / 2  # the others have no work at all
    if case["occupancy_pct"] >= _FEW_WARPS_PCT and not few_blocks:
        return None
    return _found(
        case,
        "occupancy",
        f"warps active {case['occupancy_pct']:.0f} % (sm__warps_active)",
        _limit(case),
        f"nothing is busy: DRAM {case['dram_pct']:.0f} %, L2 {case['l2_pct']:.0f} %,"
        f" multiprocessors {case['sm_pct']:.0f} %",
    )


def _limit(case: _Case) -> str:
    """Return what keeps more warps away: the grid, or the scarcest resource of a block."""
    if case.counters.values.get("waves", 1.0) < 1:
        return (
            f"{case['blocks']:.0f} blocks fill the multiprocessors {case['waves']:.2f} times"
            " (launch__waves_per_multiprocessor)"
        )
    limits = {
        name: case[f"blocks_by_{name}"]
        for name in ("registers", "shared_memory", "warps", "slots")
        if f"blocks_by_{name}" in case.counters.values
    }
    if not limits:
        return ""
    scarce = min(limits, key=lambda name: limits[name])
    return (
        f"blocks a multiprocessor by {scarce.replace('_', ' ')}: {limits[scarce]:.0f}"
        " (launch__occupancy_limit_*)"
    )


def _waits(counters: Counters) -> Sequence[str]:
    """Return what warps wait for most."""
    worst = sorted(counters.stalls.items(), key=lambda item: -item[1])[:2]
    told = " and ".join(f"{name} {100 * share:.0f} %" for name, share in worst)
    return (f"warps wait for {told or 'nothing that was found'}", "no unit is busy")


def _found(case: _Case, name: str, *proof: str) -> Bottleneck:
    said = tuple(each for each in proof if each)
    kernel = case.counters.kernel
    return Bottleneck(name=name, kernel=kernel, proof=said, levers=LEVERS[name])


def _optional(case: _Case, name: str, form: str) -> tuple[str, ...]:
    return (form.format(case[name]),) if name in case.counters.values else ()


def _count(value: float) -> str:
    return f"{value / 1e6:.1f} M" if value >= 1e6 else f"{value:.0f}"


_RULES: tuple[_Rule, ...] = (_launch, _tensor_idle, _waste, _memory, _compute, _occupancy)
LEVERS: Mapping[str, tuple[str, str, str]] = {
    "launch": (
        "Do the call in one launch: join kernels that follow each other.",
        "Give each launch more to do: more rows a block, or a persistent grid.",
        "Overlap what cannot be joined by programmatic dependent launch.",
    ),
    "tensor_idle": (
        "Use tensor instructions: wgmma (sm_90a), tcgen05 (sm_100a), mma.sync or tl.dot.",
        "Feed them from shared memory by asynchronous copies in two or more stages.",
        "Keep sums in float32 in the tensor accumulators, and round once at the end.",
    ),
    "spills": (
        "Keep less alive in each thread: smaller tiles, or more threads for the same row.",
        "Ask for fewer blocks in __launch_bounds__, so that a thread gets more registers.",
        "Move what is kept between passes to shared memory, or read it again.",
    ),
    "uncoalesced": (
        "Let neighbouring threads take neighbouring addresses: threadIdx.x along the last axis.",
        "Read 16 bytes a thread (uint4) from aligned addresses.",
        "If the layout must turn, turn it in shared memory with padded rows.",
    ),
    "bank_conflicts": (
        "Pad or swizzle rows in shared memory, so that a warp's addresses differ in their bank.",
        "Let neighbouring threads take neighbouring words; stride by the block.",
        "Keep it in registers and exchange by warp shuffles instead.",
    ),
    "memory": (
        "Move fewer bytes: read each input once, fuse with what comes before or after.",
        "Read and write 16 bytes a thread, several loads under way before the first is used.",
        "Near the measured ceiling only less traffic helps: narrower types, less padding.",
    ),
    "tensor": (
        "Near the ceiling only less work helps: narrower types where the contract allows.",
        "Larger tiles per block: fewer loads for each product.",
        "Hide prologue and epilogue: a persistent kernel with warps of their own for each.",
    ),
    "compute": (
        "Do fewer instructions: packed types (bf16x2), fast intrinsics, constants out of loops.",
        "Replace 64-bit index arithmetic and divisions by increments.",
        "Unroll, so that independent instructions follow each other.",
    ),
    "occupancy": (
        "Give a block less of the scarce resource that is named, or use more threads a block.",
        "Start more blocks: split rows, columns or the inner dimension (split-K).",
        "Or make each warp wait less: more independent loads under way in each thread.",
    ),
    "latency": (
        "Have more loads under way: unroll, prefetch into registers, or asynchronous copies.",
        "Shorten chains: fewer barriers, reductions by shuffles, no dependent loads.",
        "More warps a multiprocessor, if registers and shared memory allow.",
    ),
}
