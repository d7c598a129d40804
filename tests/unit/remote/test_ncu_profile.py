"""What is profiled, and what is said where nothing can be."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from inferproof.core.contract import KernelContract
from inferproof_remote import ncu
from inferproof_remote.gpu_profile import Timed, counted, largest_shape, read_timed, told
from inferproof_remote.incidents import Incident
from inferproof_remote.job import as_table
from inferproof_remote.kernel import Kernel, parse_kernel
from inferproof_remote.sandbox import Completed

CONTRACTS = Path(__file__).parents[3] / "contracts" / "kernels"
REAL = Path(__file__).parent / "ncu"
CEILINGS: Mapping[str, object] = {
    "memory_bytes_per_s": 4.65e12,
    "cache_bytes_per_s": 5.6e12,
    "flops_per_s": 790e12,
    "last_level_cache_bytes": 62_914_560,
}
GOOD = {
    "seconds_per_call": 2e-5,
    "launches_s": [1e-6, 8e-6, 1e-6, 6e-6, 4e-6],
    "floor_s": None,
    "kernels": ["a", "b", "c", "d", "e"],
    "device": {"name": "NVIDIA H200", "driver": "CUDA 13.0"},
}


def completed(output: str, rc: int | None = 0, *incidents: Incident) -> Completed:
    data = output.encode()
    return Completed(rc=rc, output=data, output_bytes=len(data), seconds=1.0, incidents=incidents)


def timed(**changes: object) -> Timed | Incident:
    return read_timed(completed("noise\n" + json.dumps({**GOOD, **changes})))


def test_the_hot_launches_are_the_few_that_most_of_the_time_goes_to() -> None:
    found = timed()
    assert isinstance(found, Timed)
    assert found.hot() == (1, 3, 4)
    first = found.hot_spots()[0]
    assert (first["name"], first["self_s"]) == ("b", pytest.approx(8e-6))
    one = timed(launches_s=[1e-6, 9e-5], kernels=["a", "b"])
    assert isinstance(one, Timed)
    assert one.hot() == (1,)


@pytest.mark.parametrize(
    "changes",
    [
        {"launches_s": None},
        {"launches_s": [0.0]},
        {"seconds_per_call": "fast"},
        {"seconds_per_call": float("nan")},
        {"floor_s": -1.0},
        {"kernels": [1]},
    ],
    ids=str,
)
def test_a_timing_of_another_form_is_a_crash_with_its_last_line(changes: dict[str, object]) -> None:
    found = timed(**changes)
    assert isinstance(found, Incident)
    assert found.code == "crashed"


def test_errors_of_the_device_and_limits_are_told() -> None:
    said = read_timed(completed('{"failed": "cuCtxSynchronize: CUDA_ERROR_ASSERT"}'))
    assert said == Incident("crashed", None, "the device says cuCtxSynchronize: CUDA_ERROR_ASSERT")
    limit = Incident("timed_out", None, "did not end in the time it was given")
    assert read_timed(completed("", None, limit)) == limit


@dataclass
class Said:
    """A profiler that prints what is given."""

    text: str

    def count(self, program: Path, hot: Sequence[int], kept: Path) -> str:
        return self.text


def kernel_of(contract: str, fixed: dict[str, int]) -> Kernel:
    text = (CONTRACTS / contract / "contract.yaml").read_text()
    model = KernelContract.model_validate(yaml.safe_load(text))
    return parse_kernel(model.model_dump(mode="json", by_alias=True), fixed=fixed, most={})


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission", "A person must allow it"),
        ("==WARNING== No kernels were profiled.", "no kernel was found"),
        ("==ERROR== something else", "it says: ==ERROR== something else"),
        ((REAL / "honest-rms-norm-fast.csv").read_text(), ""),
    ],
    ids=["withheld", "no-kernel", "other", "counted"],
)
def test_without_counters_times_and_roofline_stay_and_the_verdict_is_inconclusive(
    text: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "find_ncu", lambda: Path("/bin/true"))
    found = timed(launches_s=[3.8e-5], kernels=["rms_norm"], floor_s=1e-6, seconds_per_call=3.8e-5)
    assert isinstance(found, Timed)
    kernel = kernel_of("rms_norm", {"hidden": 4096, "tokens": 8192})
    given = counted(Said(text), found, tmp_path)
    whole = told(kernel, largest_shape(kernel), found, given, CEILINGS)
    assert whole["seconds_per_call"] == 3.8e-5
    device = as_table(whole["device"], "device")
    assert as_table(device["roofline"], "roofline")["share"] == pytest.approx(0.76, abs=0.01)
    bound = as_table(device["bottleneck"], "bottleneck")
    assert bound["name"] == ("inconclusive" if advice else "memory")
    assert advice in str(whole["bottleneck"])


def test_without_the_tool_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "find_ncu", lambda: None)
    found = timed()
    assert isinstance(found, Timed)
    given = counted(Said(""), found, tmp_path)
    assert "a person installs it: apt-get install" in given.why
    assert given.launches == {}


def test_fewer_launches_than_were_marked_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ncu, "find_ncu", lambda: Path("/bin/true"))
    found = timed()
    assert isinstance(found, Timed)
    assert len(found.hot()) == 3
    one = (REAL / "honest-rms-norm-fast.csv").read_text()
    assert counted(Said(one), found, tmp_path).launches == {}


@pytest.mark.parametrize(
    ("contract", "fixed", "shape"),
    [
        ("rms_norm", {"hidden": 4096}, {"tokens": 8192, "hidden": 4096}),
        ("matmul", {}, {"m": 256, "k": 2048, "n": 2048}),
        ("rms_norm", {"hidden": 4096, "tokens": 7}, {"tokens": 7, "hidden": 4096}),
    ],
)
def test_the_shape_is_the_largest_that_is_practised_or_timed(
    contract: str, fixed: dict[str, int], shape: dict[str, int]
) -> None:
    assert largest_shape(kernel_of(contract, fixed)) == shape
