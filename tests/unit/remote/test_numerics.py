"""Errors are told in units of an honest kernel's error; nothing hides in an average."""

import pytest
import torch
from torch import Tensor

from inferproof_remote.numerics import Bars, Honest, OutputError, count_unwritten, judge, tensor_of

BF16 = Bars(rms=2.0, p999=4.0, floor="bf16")
EXACT = Bars(rms=2.0, p999=4.0, floor="f32")


def truth(*shape: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def against(expected: Tensor, got: Tensor, bars: Bars = BF16) -> OutputError:
    honest = Honest(expected=expected, yardstick=expected.to(got.dtype))
    return judge(got, honest, bars, poisoned=True)


def rounded(expected: Tensor) -> Tensor:
    return expected.to(torch.bfloat16)


def test_the_rounded_truth_is_within_the_bars():
    error = against(truth(64, 1000), rounded(truth(64, 1000)))
    assert error.within(BF16)
    assert error.rms_ratio is not None
    assert 0.2 < error.rms_ratio < 1
    assert error.bad_share == 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (3, 5), (1000, 3), (5, 257), (300, 256)])
@pytest.mark.parametrize("place", [0, -1])
def test_one_wrong_element_anywhere_is_found(shape: tuple[int, int], place: int):
    expected = truth(*shape)
    got = rounded(expected)
    got.view(-1)[place] += 1.0
    assert not against(expected, got).within(BF16)


@pytest.mark.parametrize("columns", [70_000, 200_000])
def test_one_wrong_element_of_a_very_long_row_is_found(columns: int):
    expected = truth(2, columns)
    got = rounded(expected)
    got[1, 12345] += 1.0
    error = against(expected, got)
    assert not error.within(BF16)
    assert error.worst_tile == "rows 1-1 of 2"


def test_an_error_in_one_small_row_is_not_hidden_by_large_rows():
    expected = truth(500, 256)
    expected[:499] *= 1e6
    got = rounded(expected)
    got[499] = rounded(expected[499] * 1.1)
    error = against(expected, got)
    assert not error.within(BF16)
    assert error.worst_tile == "rows 499-499 of 500"


def test_an_outlier_may_be_off_by_its_own_rounding():
    expected = truth(50, 256)
    expected[:, 17] *= 1000
    got = rounded(expected)
    got[:, 17] = rounded(expected[:, 17] * (1 + 2.0**-8))
    assert against(expected, got).within(BF16)


def test_bad_share_counts_the_elements_beyond_the_bar():
    expected = truth(10, 1000)
    got = rounded(expected)
    got[:, :100] = 50.0
    assert against(expected, got).bad_share == pytest.approx(0.1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_not_finite_where_the_truth_is_finite_is_a_mismatch(value: float):
    expected = truth(4, 300)
    got = rounded(expected)
    got[2, 3] = value
    error = against(expected, got)
    assert error.nan_mismatches == 1
    assert not error.within(BF16)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_not_finite_exactly_where_the_truth_is_so_is_right(value: float):
    expected = truth(4, 300)
    expected[2, 3] = value
    assert against(expected, rounded(expected)).within(BF16)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_finite_or_other_sign_where_the_truth_is_infinite_is_a_mismatch(value: float):
    expected = truth(4, 300)
    expected[2, 3] = float("-inf")
    got = rounded(expected)
    got[2, 3] = value
    assert against(expected, got).nan_mismatches == 1


def test_an_output_of_nothing_but_nan_does_not_pass():
    expected = truth(4, 300)
    error = against(expected, torch.full((4, 300), float("nan"), dtype=torch.bfloat16))
    assert error.nan_mismatches == 1200
    assert not error.within(BF16)


def test_overflow_of_the_output_type_is_expected_where_rounding_overflows():
    expected = truth(4, 300)
    expected[0, 0] = 1e39
    assert against(expected, rounded(expected)).within(BF16)


def test_zero_rows_must_be_zero():
    expected = truth(40, 256)
    expected[7] = 0
    assert against(expected, rounded(expected)).within(BF16)
    got = rounded(expected)
    got[7, 5] = 1e-20
    assert not against(expected, got).within(BF16)


def test_flushing_subnormal_results_is_honest():
    expected = truth(4, 256) * 2.0**-130
    assert against(expected, torch.zeros(4, 256, dtype=torch.bfloat16)).within(BF16)


def test_poison_that_was_left_is_unwritten():
    expected = truth(4, 300)
    got = rounded(expected)
    got.view(torch.int16)[1, 2:5] = -1
    error = against(expected, got)
    assert error.unwritten == 3
    assert not error.within(BF16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int32])
def test_a_buffer_of_poison_bytes_is_all_unwritten(dtype: torch.dtype):
    names = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
    raw = bytearray(b"\xff" * 64 * dtype.itemsize)
    assert count_unwritten(tensor_of(raw, names.get(dtype, "i32"), (8, 8))) == 64


def test_other_nans_are_not_unwritten():
    assert count_unwritten(torch.full((4, 4), float("nan"))) == 0


def test_integers_must_be_equal():
    expected = torch.arange(100).view(10, 10)
    got = expected.int()
    assert against(expected, got).within(EXACT)
    got[3, 4] += 1
    error = against(expected, got)
    assert not error.within(EXACT)
    assert error.bad_share == pytest.approx(0.01)
    assert error.worst_tile == "element 34 of 100"


def test_minus_one_is_no_poison_where_it_is_expected():
    expected = torch.full((4, 4), -1)
    assert against(expected, expected.int()).unwritten == 0
    assert against(expected + 1, expected.int()).unwritten == 16


def test_a_float32_kernel_that_works_in_bf16_is_far_beyond_the_bars():
    expected = truth(64, 512)
    error = against(expected, rounded(expected).float(), EXACT)
    assert error.rms_ratio is not None
    assert error.rms_ratio > 1000


def test_ratios_are_finite_whatever_is_written():
    expected = truth(4, 300) * 1e-30
    got = torch.full((4, 300), 3e38, dtype=torch.bfloat16)
    error = against(expected, got)
    assert error.rms_ratio is not None
    assert error.p999_ratio is not None
    assert 0 < error.rms_ratio <= 1e30
    assert 0 < error.p999_ratio <= 1e30


def test_the_yardstick_sets_the_scale_where_it_is_worse_than_rounding():
    expected = truth(64, 512)
    poor = rounded(expected * (1 + 0.05 * truth(64, 512, seed=2)))
    honest = Honest(expected=expected, yardstick=poor)
    assert judge(poor, honest, BF16, poisoned=True).rms_ratio == pytest.approx(1.0)


def cut(expected: Tensor) -> Tensor:
    """Return `expected` with the lower half of its bits as float32 cleared."""
    bits = expected.float().view(torch.int32) & ~0xFFFF
    return bits.view(torch.float32).to(torch.bfloat16)


def test_of_a_rounded_output_nothing_carried_is_cut_and_of_a_cut_one_all_is():
    expected = truth(64, 256).float().double()
    for got, share in ((rounded(expected), 0), (cut(expected), 1)):
        error = against(expected, got)
        assert error.within(BF16), "the bars alone do not tell"
        assert error.carried is not None
        assert 0.4 < error.carried / expected.numel() < 0.6
        assert error.cut == share * error.carried


def test_what_kernels_may_flush_is_not_counted_as_cut():
    error = against(truth(4, 64) * 2.0**-120, torch.zeros(4, 64, dtype=torch.bfloat16))
    assert (error.carried, error.cut) == (0, 0)


def test_a_float32_output_is_not_asked_how_it_was_rounded():
    error = against(truth(4, 64), truth(4, 64).float(), EXACT)
    assert (error.carried, error.cut) == (0, 0)


def with_bits(expected: Tensor, bits: int) -> Tensor:
    mantissa, exponent = torch.frexp(expected)
    steps = 2.0**bits
    rounded_mantissa = torch.round(mantissa * steps) / steps
    return torch.ldexp(rounded_mantissa, exponent).to(torch.bfloat16)


def mean_error(error: OutputError) -> float:
    assert error.tiles
    assert error.tile_squares is not None
    return (error.tile_squares / error.tiles) ** 0.5


def test_all_tiles_together_tell_how_many_bits_an_output_has():
    expected = truth(500, 512) * 2.0 ** truth(500, 1, seed=2)
    once = against(expected, rounded(expected))
    twice = against(expected, rounded(rounded(expected / 1.7).double() * 1.7))
    coarse = against(expected, with_bits(expected, 7))
    assert mean_error(once) == pytest.approx(1.0, abs=0.03)
    assert 1.2 < mean_error(twice) < 1.5
    assert mean_error(coarse) == pytest.approx(2.0, abs=0.1)
    assert coarse.within(BF16), "the bars of a single tile do not tell"


def test_values_that_are_exact_in_their_dtype_say_nothing_of_its_bits():
    expected = truth(64, 512).mul(4).round()
    error = against(expected, with_bits(expected, 7))
    assert error.tiles == 0


@pytest.mark.parametrize("columns", [300, 1000, 1024, 8192])
def test_one_element_a_tenth_off_is_found_in_rows_of_any_length(columns: int):
    expected = truth(20, columns)
    got = rounded(expected)
    got[7, columns // 2] = (expected[7, columns // 2] + 0.1).to(torch.bfloat16)
    assert not against(expected, got).within(BF16)


def test_where_bits_count_one_bit_less_of_one_element_is_found():
    bars = Bars(rms=1.0, p999=1.0, floor="bf16", exact=True)
    expected = rounded(truth(8, 64)).double()
    got = expected.to(torch.bfloat16)
    assert against(expected, got, bars).within(bars)
    got[3, 5] = (got[3, 5].view(torch.int16) ^ 1).view(torch.bfloat16)
    assert not against(expected, got, bars).within(bars)
