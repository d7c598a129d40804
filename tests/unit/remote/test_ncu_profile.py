"""What is profiled, and what is said where nothing can be."""

import json
from pathlib import Path

import pytest
import yaml

from inferproof.core.contract import KernelContract
from inferproof_remote.gpu_profile import Timed, largest_shape, read_timed
from inferproof_remote.incidents import Incident
from inferproof_remote.kernel import parse_kernel
from inferproof_remote.sandbox import Completed

CONTRACTS = Path(__file__).parents[3] / "contracts" / "kernels"
GOOD = {
    "seconds_per_call": 2e-5,
    "launches_s": [1e-6, 8e-6, 1e-6, 6e-6, 4e-6],
    "floor_s": None,
    "kernels": ["a", "b", "c", "d", "e"],
    "device": {"name": "NVIDIA H200"},
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
    "changes", [{"launches_s": None}, {"seconds_per_call": "fast"}, {"kernels": [1]}], ids=str
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
    text = (CONTRACTS / contract / "contract.yaml").read_text()
    model = KernelContract.model_validate(yaml.safe_load(text))
    kernel = parse_kernel(model.model_dump(mode="json", by_alias=True), fixed=fixed, most={})
    assert largest_shape(kernel) == shape
