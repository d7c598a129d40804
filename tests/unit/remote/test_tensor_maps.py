"""Tensor maps and an untimed step: what the manifest asks becomes what the driver takes."""

import pytest

from inferproof_remote.cuda_launch import LaunchError, Packed
from inferproof_remote.gpu_launcher import Binding
from inferproof_remote.kernel import Kernel, parse_kernel
from inferproof_remote.launches import LaunchPlan, UnfitLaunch, parse_asked, resolve
from inferproof_remote.tensor_maps import map_bytes, parse_map
from shipped_kernels import read_contract

DIMS = {"m": 64, "k": 128, "n": 96}


def matmul() -> Kernel:
    raw = read_contract("matmul").model_dump(mode="json", by_alias=True)
    return parse_kernel(raw, fixed={}, most={})


def plan(**changes: object) -> LaunchPlan:
    main = {"kernel": "run", "grid": [1], "block": [32], "args": ["left", "prepared", "y"]}
    manifest: dict[str, object] = {
        "launches": [main],
        "prepare_launches": [{"kernel": "pack", "grid": [1], "block": [32], "args": ["b"]}],
        "prepared_bytes": "2*k*n",
        "tensor_maps": {"left": {"tensor": "a", "box": [64, 64], "swizzle": 128}},
    }
    return resolve(parse_asked(manifest | changes), matmul(), DIMS, sms=4)


def test_a_map_has_the_innermost_axis_first_and_strides_in_bytes() -> None:
    found = plan().maps["left"]
    assert (found.extents, found.strides_bytes, found.box) == ((128, 64), (256,), (64, 64))
    assert (found.item_type, found.swizzle, map_bytes(found)) == (9, 3, 2 * 64 * 128)
    assert parse_map(found.to_json()) == found
    assert plan().launches[0].args[0] == ("map", "left")


def test_a_map_of_prepared_memory_needs_shape_and_dtype() -> None:
    given = {"tensor": "prepared", "box": [8, 64], "shape": ["n", "k"], "dtype": "bf16"}
    assert plan(tensor_maps={"left": given}).maps["left"].extents == (128, 96)
    with pytest.raises(UnfitLaunch, match="dtype and shape"):
        plan(tensor_maps={"left": {"tensor": "prepared", "box": [8, 64]}})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"box": [64]}, "same 1 to 5 axes"),
        ({"box": [257, 64]}, "beyond 1..256"),
        ({"box": [8, 4]}, "16-byte multiples"),
        ({"shape": ["m", 63]}, "16-byte multiples"),
        ({"swizzle": 32}, "wider than the swizzle"),
    ],
)
def test_a_map_that_no_device_takes_is_refused(change: dict[str, object], why: str) -> None:
    given = {"tensor": "a", "box": [64, 64], "swizzle": 128} | change
    with pytest.raises(UnfitLaunch, match=why):
        plan(tensor_maps={"left": given})


def test_an_encoded_map_fits_a_parameter_of_its_size_alone() -> None:
    packed = Packed([("map", bytes(range(128)))], [128], name="run")
    assert len(packed.pointers) == 1
    with pytest.raises(LaunchError, match="is a map, which does not fit 8 bytes"):
        Packed([("map", bytes(128))], [8], name="run")


@pytest.mark.parametrize("name", ["a", "y", "workspace"])
def test_what_is_not_timed_sees_neither_inputs_nor_outputs(name: str) -> None:
    step = {"kernel": "pack", "grid": [1], "block": [32], "args": ["b", "prepared", name]}
    with pytest.raises(UnfitLaunch, match=f"may not be given {name}"):
        plan(prepare_launches=[step])
    through_a_map = {"kernel": "pack", "grid": [1], "block": [32], "args": ["left"]}
    with pytest.raises(UnfitLaunch, match="may not be given a"):
        plan(prepare_launches=[through_a_map])


class NoDevice:
    """Stands for the driver: what is refused here is refused before any call of it."""


def test_a_map_that_reaches_beyond_its_tensor_is_never_encoded() -> None:
    given = {"tensor": "a", "box": [64, 64], "shape": ["2*m", "k"]}
    asked = plan(tensor_maps={"left": given}).to_json()
    tensor = {"name": "a", "dtype": "bf16", "count": 64 * 128, "fixed": False}
    row = tensor | {"mutated": False, "span": None}
    with pytest.raises(LaunchError, match="left reaches beyond a"):
        Binding(NoDevice(), [], asked | {"inputs": [row], "outputs": []})  # pyright: ignore[reportArgumentType]
