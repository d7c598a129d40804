"""What a request says of a call's tensors, and where they lie in the memory that is shared."""

from typing import cast

import pytest

from inferproof_remote.gpu_layout import shared_bytes, tensor_bytes, tensor_offsets, tensor_rows
from inferproof_remote.gpu_serve import tensor_plans
from shipped_kernels import NAMES, load

DIMS = {"tokens": 5, "slots": 16, "kv_heads": 2, "head_dim": 64}


def test_what_a_contract_mutates_or_prepares_is_told_of_each_tensor() -> None:
    cache, _ = load("reshape_and_cache")
    plans = tensor_plans(tensor_rows(cache, DIMS)["inputs"])
    assert [each.name for each in plans if each.mutated] == ["key_cache", "value_cache"]
    assert {each.name: each.span for each in plans}["slot_mapping"] == (-1, 16)
    norm, _ = load("fused_add_rms_norm")
    plans = tensor_plans(tensor_rows(norm, {"tokens": 3, "hidden": 256})["inputs"])
    assert [(each.name, each.fixed, each.mutated) for each in plans] == [
        ("x", False, False),
        ("residual", False, True),
        ("weight", True, False),
    ]


def test_what_is_judged_is_every_output_and_every_input_that_is_changed() -> None:
    for name, wanted in (
        ("reshape_and_cache", ["key_cache", "value_cache"]),
        ("fused_add_rms_norm", ["y", "residual"]),
        ("rms_norm", ["y"]),
    ):
        assert [each.name for each in load(name)[0].results] == wanted


@pytest.mark.parametrize("name", NAMES)
def test_tensors_lie_apart_and_fit(name: str) -> None:
    kernel, _ = load(name)
    for bound in ("low", "high"):
        dims = {dim: cast("int", getattr(extent, bound)) for dim, extent in kernel.extents.items()}
        tensors = {each.name: each for each in (*kernel.inputs, *kernel.outputs)}
        end = 0
        for tensor, offset in tensor_offsets(kernel, dims).items():
            assert offset >= end
            end = offset + tensor_bytes(tensors[tensor], dims)
        assert end <= shared_bytes(kernel)
