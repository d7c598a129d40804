"""What of a Triton launch is compiled in, and how its cubin is launched."""

import pytest

from inferproof_remote.build_triton import Variant, launched_as, variant_of
from inferproof_remote.launches import Asked, UnfitLaunch, parse_launches, resolve
from shipped_kernels import load

RAW = {
    "kernel": "rms_norm",
    "grid": ["tokens"],
    "block": [256],
    "args": ["x", "weight", "y", "tokens", "tokens*hidden", "eps"],
    "constants": {"HIDDEN": "hidden", "BLOCK": "pow2(hidden)", "num_stages": 3},
}
KERNEL, _ = load("rms_norm")


def plan(tokens: int):
    dims = {"tokens": tokens, "hidden": 192}
    return resolve(Asked(launches=parse_launches([RAW])), KERNEL, dims, sms=132)


def variant(tokens: int) -> dict[str, object]:
    return variant_of(plan(tokens).launches[0], KERNEL, 90)


def test_a_variant_names_types_constants_and_warps() -> None:
    found = variant(32)
    assert found["types"] == ["*bf16", "*bf16", "*bf16", "i32", "i32", "fp32"]
    assert found["constants"] == {"HIDDEN": 192, "BLOCK": 256}
    assert found["options"] == {"num_warps": 8, "num_stages": 3}


def test_pointers_and_multiples_of_sixteen_are_told_to_the_compiler() -> None:
    assert variant(32)["aligned"] == [0, 1, 2, 3, 4]
    assert variant(33)["aligned"] == [0, 1, 2, 4]


def test_shapes_of_one_kind_share_a_variant() -> None:
    assert variant(33) == variant(35)
    assert variant(32) == variant(64) != variant(33)


def test_a_cubin_is_launched_with_its_own_memory_and_no_scratch() -> None:
    made = Variant(cubin=b"", name="rms_norm_0", shared_bytes=64, parameters=8)
    (launch,) = launched_as(plan(32), [(2, made)]).launches
    assert (launch.kernel, launch.module, launch.shared_bytes) == ("rms_norm_0", 2, 64)
    assert launch.args[-2:] == (("integer", 0), ("integer", 0))
    assert launch.grid == (32, 1, 1)


def test_a_cubin_with_too_few_parameters_is_refused() -> None:
    made = Variant(cubin=b"", name="k", shared_bytes=0, parameters=2)
    with pytest.raises(UnfitLaunch):
        launched_as(plan(32), [(0, made)])
