"""Inputs are what their family says, follow from the bits, and cannot be told from each other."""

import pytest
import torch

from inferproof_remote.inputs import FAMILIES, InputMaker, Tensors
from shipped_kernels import NAMES, load, seeded, single

ROWS, HIDDEN = 64, 256
DIMS = {"tokens": ROWS, "hidden": HIDDEN}


def make(family: str, *, seed: int = 1, name: str = "a") -> torch.Tensor:
    kernel, _ = single("rms_norm", **DIMS)
    return InputMaker(seeded(seed), kernel).make(name, DIMS, family)["x"].double()


@pytest.mark.parametrize("name", NAMES)
def test_inputs_have_the_shapes_and_types_of_the_contract(name: str):
    kernel, _ = load(name)
    dims = {dim: extent.high for dim, extent in kernel.extents.items()}
    made = InputMaker(seeded(1), kernel).make("a", dims, "mixed")
    assert [(n, tuple(v.shape)) for n, v in made.items()] == [
        (tensor.name, tensor.extents(dims)) for tensor in kernel.inputs
    ]
    assert all(bool(torch.isfinite(value.double()).all()) for value in made.values())


@pytest.mark.parametrize("family", [*FAMILIES, "mixed"])
def test_the_same_stream_gives_the_same_inputs_and_another_gives_others(family: str):
    assert torch.equal(make(family), make(family))
    assert not torch.equal(make(family), make(family, name="b"))
    assert not torch.equal(make(family), make(family, seed=2))


@pytest.mark.parametrize("family", ["normal", "log_uniform", "near_cancelling"])
def test_no_stretch_of_a_large_input_is_met_twice(family: str):
    kernel, _ = single("matmul", m=1, k=2048, n=1024)
    made = InputMaker(seeded(1), kernel).make("a", {"m": 1, "k": 2048, "n": 1024}, family)["b"]
    bits = made.view(torch.int16).long()
    stretch, last = torch.zeros(2048, 1024 - 8, dtype=torch.int64), 1024 - 8
    for at in range(8):
        stretch = stretch * 1_000_003 + bits[:, at : at + last]
    assert _distinct(stretch) > 0.999 * stretch.numel()


def test_normal_has_zero_mean_and_one_scale():
    values = make("normal")
    assert values.mean().abs() < 0.1 * values.std()
    assert 0.4 < values.std() < 2.1


def test_log_uniform_spans_many_octaves():
    exponents = make("log_uniform").abs().log2()
    assert exponents.max() - exponents.min() > 20
    assert (exponents.amax(1) - exponents.amin(1)).min() > 8


def test_outlier_channels_stand_out_in_every_row():
    sizes = make("outlier_channels").square().mean(0).sqrt()
    assert sizes.max() > 10 * sizes.median()
    assert (sizes > 8 * sizes.median()).sum() <= 1 + HIDDEN // 128


def test_near_cancelling_rows_add_up_to_almost_nothing():
    values = make("near_cancelling")
    assert (values.sum(1).abs() < 0.01 * values.abs().sum(1)).all()


def test_no_constant_row_is_so_far_from_zero_that_a_sigmoid_vanishes():
    assert all(float(make("constant", seed=seed).abs().max()) <= 8.0 for seed in range(50))


def test_constant_rows_hold_one_value_and_rows_differ():
    values = make("constant")
    assert (values == values[:, :1]).all()
    assert _distinct(values[:, 0]) > ROWS // 2


def test_denormal_rows_hold_subnormals_and_some_rows_are_zero():
    values = make("denormal")
    smallest_normal = torch.finfo(torch.bfloat16).smallest_normal
    assert ((values != 0) & (values.abs() < smallest_normal)).any()
    zero = (values == 0).all(1)
    assert 0 < zero.sum() < ROWS // 2
    assert values.abs().max() < 2.0**-100


def test_weights_are_never_subnormal():
    kernel, _ = single("rms_norm", **DIMS)
    made = InputMaker(seeded(1), kernel).make("a", DIMS, "denormal")
    assert made["weight"].double().square().mean().sqrt() > 0.1


def test_small_integers_are_small_integers():
    values = make("small_integers")
    assert torch.equal(values, values.round())
    assert _distinct(values) == 9


def test_mixed_rows_are_of_several_families():
    values = make("mixed")
    constant = (values == values[:, :1]).all(1)
    whole = (values == values.round()).all(1) & ~constant
    assert 0 < constant.sum() < ROWS // 2
    assert 0 < whole.sum() < ROWS // 2


def test_integers_fill_their_range():
    kernel, _ = load("rotary_embedding")
    dims = {**{d: e.low for d, e in kernel.extents.items()}, "tokens": 200, "max_position": 64}
    positions = InputMaker(seeded(1), kernel).make("a", dims, "normal")["positions"]
    assert positions.dtype == torch.int64
    assert positions.min() >= 0
    assert positions.max() < 64
    assert _distinct(positions) > 40


@pytest.mark.parametrize("name", NAMES)
def test_near_duplicates_differ_in_few_places_that_change_what_is_expected(name: str):
    kernel, oracle = load(name)
    dims = {dim: extent.clip(100) for dim, extent in kernel.extents.items()}
    told = 0
    for seed in range(10):
        maker = InputMaker(seeded(seed), kernel)
        base = maker.make("a", dims, "normal")
        near = maker.make_near("b", base)
        assert 1 <= _changed(base, near) <= 4 * len(kernel.inputs)
        stale = oracle.ask(base, dims).yardstick
        errors = oracle.ask(near, dims).judge(stale, oracle.bars)
        told += any(not error.within(oracle.bars) for error in errors.values())
    # Another logit may leave a drawn token what it was; of other outputs each change is seen.
    assert told >= (1 if "sample" in name else 10)


def test_near_duplicates_leave_their_base_alone():
    kernel, _ = single("rms_norm", **DIMS)
    maker = InputMaker(seeded(1), kernel)
    base = maker.make("a", DIMS, "normal")
    before = {name: value.clone() for name, value in base.items()}
    maker.make_near("b", base)
    assert all(torch.equal(before[name], value) for name, value in base.items())


def _distinct(values: torch.Tensor) -> int:
    ordered = values.flatten().sort().values
    return 1 + int((ordered[1:] != ordered[:-1]).sum())


def _changed(base: Tensors, near: Tensors) -> int:
    return sum(int((base[name] != near[name]).sum()) for name in base)
