"""One bottleneck for each kernel, from what an H200 counted; none where a counter is missing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from inferproof_remote import ncu
from inferproof_remote.gpu_bottleneck import LEVERS, Peaks, Work, inconclusive, verdict
from inferproof_remote.gpu_counters import Counters, counters_of
from inferproof_remote.gpu_roofline import roofline

REAL = Path(__file__).parent / "ncu"
H200 = Peaks(memory_bytes_per_s=4.65e12, flops_per_s=790e12)
NORM = Work(
    seconds=38e-6,
    launches=1,
    floor_s=1.08e-6,
    bytes=134.2e6,
    flops=134.2e6,
    fits_tensor_cores=True,
)
MATMUL = replace(NORM, seconds=187e-6, bytes=10.5e6, flops=2.147e9)
WORKS: Mapping[str, Work] = {
    "uncoalesced": replace(NORM, seconds=709e-6, bytes=151e6, flops=151e6),
    "spilling": replace(NORM, seconds=139e-6, fits_tensor_cores=False),
    "low-occupancy": replace(NORM, seconds=601e-6),
    "bank-conflicts": replace(NORM, seconds=419e-6),
    "launch-bound": replace(NORM, seconds=16.9e-6, launches=16, floor_s=15.2e-6, bytes=516e3),
    "tensor-idle": MATMUL,
    "uncoalesced-own-rows": replace(NORM, seconds=916e-6),
    "spilling-indexed": replace(NORM, seconds=143e-6),
    "low-occupancy-few-blocks": replace(NORM, seconds=593e-6),
    "bank-conflicts-eight": replace(NORM, seconds=103e-6, fits_tensor_cores=False),
    "launch-bound-in-four": replace(NORM, seconds=4.84e-6, launches=4, floor_s=4.28e-6),
    "tensor-idle-plain": replace(MATMUL, seconds=440e-6),
    "honest-rms-norm-fast": NORM,
    "honest-silu-and-mul-fast": replace(NORM, seconds=36.5e-6, bytes=151e6, flops=151e6),
    "honest-triton-rms-norm": replace(NORM, seconds=34.3e-6),
    "honest-matmul-tensor-cores": replace(MATMUL, seconds=127.7e-6),
    "honest-rms-norm-persistent": replace(NORM, seconds=49.4e-6),
}
NAMED = {
    "uncoalesced": "uncoalesced",
    "spilling": "spills",
    "low-occupancy": "occupancy",
    "bank-conflicts": "bank_conflicts",
    "launch-bound": "launch",
    "tensor-idle": "tensor_idle",
    "uncoalesced-own-rows": "uncoalesced",
    "spilling-indexed": "spills",
    "low-occupancy-few-blocks": "occupancy",
    "bank-conflicts-eight": "bank_conflicts",
    "launch-bound-in-four": "launch",
    "tensor-idle-plain": "tensor_idle",
    "honest-rms-norm-fast": "memory",
    "honest-silu-and-mul-fast": "memory",
    "honest-triton-rms-norm": "memory",
    "honest-matmul-tensor-cores": "occupancy",
    "honest-rms-norm-persistent": "latency",
}


def counted(name: str, **changes: float) -> Counters:
    found = counters_of(ncu.parse_raw((REAL / f"{name}.csv").read_text())[0])
    return replace(found, values={**found.values, **changes})


def without(counters: Counters, *names: str) -> Counters:
    left = {name: value for name, value in counters.values.items() if name not in names}
    return replace(counters, values=left)


@pytest.mark.parametrize("name", NAMED)
def test_a_kernel_with_one_bottleneck_is_named_for_it_with_proof_and_levers(name: str) -> None:
    found = verdict(counted(name), H200, WORKS[name])
    assert found.name == NAMED[name]
    assert found.proof
    assert any(digit.isdigit() for digit in found.proof[0])
    assert len(found.levers) == 3


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("honest-rms-norm-fast", "local_sectors"),
        ("honest-rms-norm-fast", "shared_wavefronts_ideal"),
        ("honest-rms-norm-fast", "dram_bytes"),
        ("honest-rms-norm-fast", "l2_pct"),
        ("bank-conflicts", "global_sectors"),
        ("tensor-idle", "tensor_pct"),
        ("low-occupancy", "occupancy_pct"),
        ("honest-rms-norm-persistent", "sm_pct"),
    ],
)
def test_a_missing_counter_is_inconclusive_and_named(name: str, lacking: str) -> None:
    found = verdict(without(counted(name), lacking), H200, WORKS[name])
    assert found.name == "inconclusive"
    assert f"not found: {lacking}" in found.proof[0]
    assert "install" in found.proof[0]
    assert found.levers == ()


def test_withheld_counters_are_inconclusive_and_say_who_must_act() -> None:
    why = ncu.trouble("==ERROR== ERR_NVGPUCTRPERM")
    assert why is not None
    found = inconclusive(why, kernel="k")
    assert (found.name, found.kernel) == ("inconclusive", "k")
    assert "A person must allow it" in found.proof[0]


def test_nothing_counted_at_all_is_never_a_bottleneck() -> None:
    nothing = Counters(kernel="k", values={})
    assert verdict(nothing, H200, NORM).name == "inconclusive"
    assert verdict(nothing, Peaks(memory_bytes_per_s=None, flops_per_s=None), NORM).name == (
        "inconclusive"
    )


def test_an_unknown_launch_floor_is_inconclusive() -> None:
    found = verdict(counted("launch-bound"), H200, replace(NORM, floor_s=None))
    assert found.name == "inconclusive"


def test_small_waste_is_not_the_bottleneck() -> None:
    norm = counted("honest-rms-norm-fast")
    slightly = {**norm.values, "global_sectors": 1.3 * norm.values["global_sectors_ideal"]}
    assert verdict(replace(norm, values=slightly), H200, NORM).name == "memory"


def test_waste_that_nothing_waits_for_is_not_the_bottleneck() -> None:
    idle = counted("bank-conflicts", l1_pct=5.0, l2_pct=5.0, dram_pct=90.0)
    idle = replace(idle, stalls={"barrier": 0.9})
    assert verdict(idle, H200, NORM).name == "memory"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"tensor_pct": 85.0}, "tensor"),
        ({"sm_pct": 85.0}, "compute"),
        ({"l2_pct": 90.0}, "memory"),
        ({"occupancy_pct": 60.0}, "latency"),
    ],
)
def test_what_is_busy_is_named(changes: Mapping[str, float], name: str) -> None:
    low = counted("low-occupancy", **changes)
    assert verdict(low, H200, WORKS["low-occupancy"]).name == name


def test_a_matmul_in_float32_may_leave_the_tensor_cores_idle() -> None:
    found = verdict(counted("tensor-idle"), H200, replace(MATMUL, fits_tensor_cores=False))
    assert found.name == "occupancy"


def test_idle_tensor_cores_are_no_matter_where_memory_sets_the_pace() -> None:
    thin = replace(MATMUL, flops=4 * MATMUL.bytes)
    assert verdict(counted("tensor-idle"), H200, thin).name == "occupancy"


def test_a_grid_that_does_not_fill_the_gpu_is_named_as_the_limit() -> None:
    found = verdict(counted("honest-matmul-tensor-cores"), H200, MATMUL)
    assert "128 blocks fill the multiprocessors 0.24 times" in found.proof[1]


def test_every_bottleneck_has_three_short_levers() -> None:
    assert set(LEVERS) >= set(NAMED.values())
    assert all(len(each) <= 100 for levers in LEVERS.values() for each in levers)


CEILINGS: Mapping[str, object] = {
    "memory_bytes_per_s": 4.65e12,
    "cache_bytes_per_s": 5.6e12,
    "flops_per_s": 790e12,
    "last_level_cache_bytes": 62_914_560,
}


def test_the_roofline_is_by_measured_ceilings_with_the_datasheet_beside_it() -> None:
    found = roofline(
        chip="NVIDIA H200", seconds=38e-6, moved_bytes=134.2e6, flops=134.2e6, ceilings=CEILINGS
    )
    assert found is not None
    assert (found.bound, round(found.share, 2)) == ("memory", 0.76)
    assert found.datasheet_share == pytest.approx(134.2e6 / 4.8e12 / 38e-6)


def test_what_fits_in_the_cache_is_held_against_the_cache() -> None:
    found = roofline(
        chip="NVIDIA H200", seconds=5e-6, moved_bytes=1e6, flops=1e6, ceilings=CEILINGS
    )
    assert found is not None
    assert (found.bound, found.least_s) == ("cache", pytest.approx(1e6 / 5.6e12))


def test_an_unknown_chip_has_no_datasheet_and_no_ceilings_no_roofline() -> None:
    found = roofline(chip="Fancy 9000", seconds=1e-3, moved_bytes=1.0, flops=1e9, ceilings=CEILINGS)
    assert found is not None
    assert (found.bound, found.datasheet_share) == ("compute", None)
    unknown: Mapping[str, object] = dict.fromkeys(CEILINGS)
    assert (
        roofline(chip="NVIDIA H200", seconds=1.0, moved_bytes=1.0, flops=1.0, ceilings=unknown)
        is None
    )


@pytest.mark.parametrize(("chip", "memory"), [("NVIDIA B200", 8.0e12), ("NVIDIA GB200", 8.0e12)])
def test_blackwell_is_in_the_table(chip: str, memory: float) -> None:
    found = roofline(chip=chip, seconds=1.0, moved_bytes=1.0, flops=1.0, ceilings=CEILINGS)
    assert found is not None
    assert found.datasheet_memory_bytes_per_s == memory
