"""Weights after quantisation, held against the published definitions of each format."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from inferproof_remote.serving.quantised import (
    Quantisation,
    UnevenBlocks,
    dequantised,
    e2m1,
    e4m3,
    quantise_model,
)

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
# e4m3fn by its definition: 1 + mantissa/8 at exponents -6 … 8, subnormals of 2^-9, no infinity,
# and the very last code is NaN.
E4M3 = [mantissa * 2.0**-9 for mantissa in range(8)] + [
    (1 + mantissa / 8) * 2.0**exponent
    for exponent in range(-6, 9)
    for mantissa in range(8)
    if (exponent, mantissa) != (8, 7)
]
ON_A_GRID: tuple[Quantisation, ...] = (
    "bf16",
    "fp8_per_tensor",
    "fp8_per_channel",
    "int8_per_channel",
    "mxfp4",
)
INT4: tuple[Quantisation, ...] = ("int4_group_32", "int4_group_64", "int4_group_128")
EVERY: tuple[Quantisation, ...] = (*ON_A_GRID, "nvfp4", *INT4)
sizes = st.floats(-1e4, 1e4, width=32)


def weights(seed: int, rows: int = 4) -> Tensor:
    """Return rows whose sizes differ from row to row and from block to block."""
    drawn = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, 128, generator=drawn)
    blocks = torch.exp(2 * torch.randn(rows, 8, generator=drawn)).repeat_interleave(16, dim=1)
    return values * blocks


def values(rows: Tensor) -> list[float]:
    """Return the numbers of a tensor, one after another."""
    return list(map(float, rows.flatten()))


def nearest(value: float, points: list[float]) -> float:
    """Return the code point nearest to a value; of two as near, that of the even code."""
    size = min(abs(value), points[-1])
    gap = min(abs(size - each) for each in points)
    found = [place for place, each in enumerate(points) if abs(size - each) == gap]
    even = [place for place in found if place % 2 == 0] or found
    return math.copysign(points[even[0]], value)


@given(sizes)
def test_e2m1_is_the_nearest_code_point_ties_to_even(value: float) -> None:
    given_back = float(e2m1(torch.tensor([value]))[0])
    assert given_back == nearest(value, E2M1)


@pytest.mark.parametrize(("low", "high"), list(itertools.pairwise(E2M1)))
def test_e2m1_ties_between_neighbours_go_to_the_even_code(low: float, high: float) -> None:
    middle = (low + high) / 2
    assert float(e2m1(torch.tensor([middle]))[0]) == nearest(middle, E2M1)
    assert float(e2m1(torch.tensor([-middle]))[0]) == -nearest(middle, E2M1)


@given(sizes)
def test_e4m3_is_the_nearest_code_point_ties_to_even(value: float) -> None:
    assert float(e4m3(torch.tensor([value]))[0]) == nearest(value, E4M3)


def test_known_rows_come_back_as_the_definitions_say() -> None:
    ints = torch.tensor([[127.0, -1.0, 0.6, 0.5]])
    assert values(dequantised(ints, "int8_per_channel")) == [127, -1, 1, 0]
    group = torch.cat((torch.tensor([[7.5, -7.5, 6.4, 1.5]]), torch.zeros(1, 28)), dim=1)
    assert values(dequantised(group, "int4_group_32"))[:4] == [7, -8, 6, 2]
    block = torch.cat((torch.tensor([[7.0, 2.4, -0.3, 0.2]]), torch.zeros(1, 28)), dim=1)
    assert values(dequantised(block, "mxfp4"))[:4] == [6, 2, -0.5, 0]  # scale 2^(2 - 2)
    largest = torch.cat((torch.tensor([[2688.0, 900.0]]), torch.zeros(1, 14)), dim=1)
    assert values(dequantised(largest, "nvfp4"))[:2] == [2688, 896]  # scales 1 and 448


@given(st.integers(0, 10_000), st.sampled_from(ON_A_GRID))
def test_what_lies_on_a_grid_stays_there(seed: int, way: Quantisation) -> None:
    once = dequantised(weights(seed), way)
    assert torch.allclose(dequantised(once, way), once, rtol=1e-6, atol=0)


@given(st.integers(0, 10_000), st.sampled_from(EVERY))
def test_every_format_turns_signs_and_keeps_powers_of_two(seed: int, way: Quantisation) -> None:
    given_weights = weights(seed)
    if not way.startswith("int4"):  # whose codes reach one further below than above
        assert torch.equal(dequantised(-given_weights, way), -dequantised(given_weights, way))
    assert torch.equal(dequantised(4 * given_weights, way), 4 * dequantised(given_weights, way))


@given(st.integers(0, 10_000))
def test_an_error_is_at_most_half_a_step(seed: int) -> None:
    given_weights = weights(seed)
    step = given_weights.abs().amax(dim=1, keepdim=True) / 127
    error = (dequantised(given_weights, "int8_per_channel") - given_weights).abs()
    assert bool((error <= 0.5001 * step).all())


@pytest.mark.parametrize("way", EVERY)
def test_zeros_stay_zeros_and_experts_are_each_their_own(way: Quantisation) -> None:
    assert not dequantised(torch.zeros(4, 128), way).any()
    experts = torch.stack([weights(1), 100 * weights(2)])
    apart = torch.stack([dequantised(each, way) for each in experts])
    assert torch.equal(dequantised(experts, way), apart)


def test_rows_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(UnevenBlocks, match="blocks of 16"):
        dequantised(torch.ones(2, 24), "nvfp4")


class Layers(nn.Module):
    """A linear layer, experts as one tensor, a norm and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(128, 4, bias=False)
        self.experts = nn.Parameter(weights(3).expand(2, -1, -1).clone())
        self.norm = nn.Parameter(torch.full((4,), 1.234567))
        self.lm_head = nn.Linear(128, 4, bias=False)


def test_a_model_keeps_its_output_layer_and_norms() -> None:
    layers = Layers()
    kept = layers.lm_head.weight.clone()
    before = layers.linear.weight.detach().clone()
    quantise_model(layers, "mxfp4")
    assert torch.equal(layers.lm_head.weight, kept)
    assert torch.equal(layers.norm, torch.full((4,), 1.234567))
    assert torch.equal(layers.linear.weight, dequantised(before, "mxfp4"))
    assert torch.equal(layers.experts[0], dequantised(weights(3), "mxfp4"))
