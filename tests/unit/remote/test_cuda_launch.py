"""Launches in the driver's form, without a driver."""

import ctypes

import pytest

from inferproof_remote.cuda_launch import LaunchError, Packed, Shape, launch_config


def bytes_at(packed: Packed, place: int, count: int) -> bytes:
    return ctypes.string_at(packed.pointers[place] or 0, count)


def test_arguments_take_the_size_of_the_kernels_parameters() -> None:
    packed = Packed(
        [("pointer", 0x7000), ("integer", 5), ("integer", -5), ("float", 0.5)],
        [8, 4, 8, 4],
        name="k",
    )
    assert bytes_at(packed, 0, 8) == (0x7000).to_bytes(8, "little")
    assert bytes_at(packed, 1, 4) == (5).to_bytes(4, "little")
    assert bytes_at(packed, 2, 8) == (-5).to_bytes(8, "little", signed=True)
    assert bytes_at(packed, 3, 4) == bytes.fromhex("0000003f")


def test_a_kernel_without_parameters_takes_no_arguments() -> None:
    Packed([], [], name="k")


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (("integer", 1 << 31), 4),
        (("integer", 1), 2),
        (("pointer", 1), 4),
        (("float", 1.0), 2),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(value: tuple[str, float], size: int) -> None:
    with pytest.raises(LaunchError, match="argument 0 of kernel k"):
        Packed([value], [size], name="k")  # type: ignore[list-item]


def test_a_wrong_number_of_arguments_is_refused_with_both_numbers() -> None:
    with pytest.raises(LaunchError, match="takes 2 arguments, 1 are given"):
        Packed([("integer", 1)], [4, 4], name="k")


def test_clusters_and_cooperation_are_attributes_of_the_launch() -> None:
    shape = Shape(grid=(4, 2, 1), block=(128, 1, 1), cluster=(2, 1, 1), cooperative=True)
    config = launch_config(shape, 9)
    assert (tuple(config.grid), tuple(config.block)) == ((4, 2, 1), (128, 1, 1))
    assert config.attribute_count == 2
    found = {config.attributes[i].id: list(config.attributes[i].value)[:3] for i in range(2)}
    assert found == {4: [2, 1, 1], 2: [1, 0, 0]}


def test_a_plain_launch_has_no_attributes() -> None:
    assert launch_config(Shape(grid=(1, 1, 1), block=(32, 1, 1)), 0).attribute_count == 0
