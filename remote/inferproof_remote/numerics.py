"""How far an output is from the float64 reference, in units of an honest kernel's error.

Tiles are rows of the last axis, or as many rows together as make `_TILE` elements, so that an
error confined to one row is not averaged away. Two figures are the worst over tiles:

- RMS: RMS(error) / max(RMS(yardstick error), u * RMS(reference));
- P99.9 of |error| / scale against the same of the yardstick (at least u), where an element's scale
  is the larger of its own magnitude and its tile's RMS. The worst element is held to the same
  multiple of the yardstick's worst: a wrong tail element must not hide in the 0.1 %.

A whole unit roundoff is twice to four times what rounding costs, which a single tile may need: one
large element, rounded twice, can be that far off. All tiles together may not, so two sums and two
counts go on, for the gate to add up over calls:

- over the tiles in which rounding shows, the squares of RMS(error) / max(RMS(yardstick error),
  RMS of the rounding error of the floor dtype), which is u / sqrt(3) of an element's power of two;
- of the elements of a 16-bit output that rounding to nearest carries away from zero, how many came
  out nearer to zero than they are: an output that was cut, not rounded.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES: Mapping[str, torch.dtype] = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "ue4m3": torch.float8_e4m3fn,
    "ue8m0": torch.float8_e8m0fnu,
    "f4e2m1x2": torch.uint8,
}
UNIT_ROUNDOFF: Mapping[str, float] = {
    "bf16": 2.0**-8,
    "f16": 2.0**-11,
    "f32": 2.0**-24,
    "f64": 2.0**-53,
}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_TILE = 256
_HALF_BYTES = 2
_CHUNK = 1 << 17
_DEVICE_CHUNK = 1 << 23  # each step has a price on an accelerator, and memory is no matter
_SHOWS = 0.5  # of what rounding costs: less, and the values happen to be exact
_LARGEST = 1e30
_INTEGERS_DIFFER = 1e6
# Below float32's smallest normal number, honest kernels that flush subnormals to zero differ from
# honest kernels that keep them; float16 cannot resolve less than its own smallest subnormal.
_LEAST = {torch.float16: 2.0**-24}
_FLUSHED = 2.0**-126
_SURELY_KEPT = 2.0**-100


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """What the contract allows: multiples of the yardstick's error, and the floor under it.

    `exact` allows no other bits than those of the reference, rounded to the output's dtype; of
    dtypes of a byte no others are ever allowed, since their neighbours are far apart.
    """

    rms: float
    p999: float
    floor: str
    exact: bool = False

    @property
    def unit(self) -> float:
        """Relative error that the yardstick is never assumed to beat."""
        return UNIT_ROUNDOFF.get(self.floor, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputError:
    """How far one output is from the reference; the fields of the evidence of the same name."""

    rms_ratio: float | None
    p999_ratio: float | None
    nan_mismatches: int
    unwritten: int
    bad_share: float
    worst_tile: str
    stale_of: int | None = None
    carried: int | None = None
    cut: int | None = None
    tiles: int | None = None
    tile_squares: float | None = None

    def within(self, bars: Bars) -> bool:
        """Return whether nothing is wrong with this output."""
        if self.unwritten or self.nan_mismatches or self.rms_ratio is None:
            return False
        return self.rms_ratio <= bars.rms and (self.p999_ratio or 0.0) <= bars.p999


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest:
    """What an output is judged by: the reference, and how an honest kernel differs from it.

    `yardstick_of` is the reference the yardstick is compared with when that is another one, as
    with ties that either may break differently.
    """

    expected: Tensor
    yardstick: Tensor
    yardstick_of: Tensor | None = None


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Figures of some tiles; one value per tile."""

    rms: Tensor
    p999: Tensor
    bad: int
    squares: Tensor


def judge(got: Tensor, honest: Honest, bars: Bars, *, poisoned: bool) -> OutputError:
    """Return how far `got` is from the reference; `poisoned` says what it held before the call."""
    expected = honest.expected.to(torch.float64).flatten()
    unwritten = count_unwritten(got, honest.expected) if poisoned else 0
    if bars.exact or not got.dtype.is_floating_point or got.element_size() == 1:
        return _judge_bits(got, honest.expected, unwritten)
    length = _tile_length(got)
    values = got.flatten()
    yardstick = honest.yardstick.flatten()
    other = honest.yardstick_of
    truth = expected if other is None else other.to(torch.float64).flatten()
    least = max(_LEAST.get(got.dtype, 0.0), _FLUSHED)
    mismatches, bad, worst = 0, 0, _Worst()
    carried, cut = 0, 0
    most = _DEVICE_CHUNK if got.is_cuda else _CHUNK
    for start, stop in _spans(values.numel(), length, most):
        part = slice(start, stop)
        wrong, error = _errors(values[part], expected[part], yardstick[part])
        _, honest_error = _errors(yardstick[part], truth[part], yardstick[part])
        mismatches += wrong
        chunk = _measure(_Rows(expected[part], error, honest_error, length), bars, least)
        bad += chunk.bad
        more_carried, more_cut = _roundings(got.dtype, expected[part], error)
        carried, cut = carried + more_carried, cut + more_cut
        worst.add(chunk, start // length)
    return OutputError(
        rms_ratio=worst.rms,
        p999_ratio=worst.p999,
        nan_mismatches=mismatches,
        unwritten=unwritten,
        bad_share=min(1.0, bad / values.numel()),
        worst_tile=worst.describe(got, length),
        carried=carried,
        cut=cut,
        tiles=worst.tiles,
        tile_squares=min(_LARGEST, worst.squares),
    )


class _Worst:
    """The worst figures so far and where the worst RMS is; what all tiles add up to."""

    def __init__(self) -> None:
        self.rms = 0.0
        self.p999 = 0.0
        self.tiles = 0
        self.squares = 0.0
        self._tile = 0

    def add(self, chunk: _Chunk, first_tile: int) -> None:
        """Take in the tiles of `chunk`, the first of which has number `first_tile`."""
        rms, at = chunk.rms.max(0)
        self.p999 = min(_LARGEST, max(self.p999, chunk.p999.max().item()))
        self.tiles += chunk.squares.numel()
        self.squares += chunk.squares.sum().item()
        if rms.item() > self.rms:
            self.rms = min(_LARGEST, rms.item())
            self._tile = first_tile + int(at.item())

    def describe(self, got: Tensor, length: int) -> str:
        """Return where the worst tile is, in rows of the output."""
        columns = got.shape[-1] if got.dim() else 1
        rows = max(1, got.numel() // columns)
        first = min(self._tile * length // columns, max(0, rows - length // columns))
        last = min(rows, first + max(1, length // columns)) - 1
        return f"rows {first}-{last} of {rows}"


def _tile_length(got: Tensor) -> int:
    columns = got.shape[-1] if got.dim() else 1
    return min(got.numel(), columns * -(-_TILE // columns))


def _spans(numel: int, length: int, most: int) -> list[tuple[int, int]]:
    """Return spans of whole tiles; the last is the final tile, overlapping if need be."""
    step = max(1, most // length) * length
    whole = numel // length * length
    spans = [(start, min(start + step, whole)) for start in range(0, whole, step)]
    return spans if whole == numel else [*spans, (numel - length, numel)]


def _errors(got: Tensor, expected: Tensor, yardstick: Tensor) -> tuple[int, Tensor]:
    """Return how many NaN and infinities are out of place, and the error of all other elements."""
    error = got.to(torch.float64) - expected
    if bool(torch.isfinite(error.sum())):
        return 0, error
    wanted = _kind(expected.to(got.dtype))
    kind = _kind(got)
    wrong = (kind != wanted) & (kind != _kind(yardstick))
    usable = (kind == 0) & (wanted == 0)
    return int(wrong.sum().item()), torch.where(usable, error, 0.0)


def _kind(values: Tensor) -> Tensor:
    """Return 0 for finite elements, 1 for NaN, 2 and 3 for the infinities."""
    return values.isnan() * 1 + values.isposinf() * 2 + values.isneginf() * 3


@dataclass(frozen=True, slots=True)
class _Rows:
    expected: Tensor
    error: Tensor
    honest_error: Tensor
    length: int


def _measure(rows: _Rows, bars: Bars, least: float) -> _Chunk:
    expected = torch.nan_to_num(rows.expected, 0.0, 0.0, 0.0).view(-1, rows.length)
    error, honest = rows.error.view_as(expected), rows.honest_error.view_as(expected)
    size = _rms(expected)
    rms_unit = torch.maximum(_rms(honest), bars.unit * size).clamp_min(least)
    scale = torch.maximum(expected.abs(), size.unsqueeze(1)).clamp_min(least / bars.unit)
    share = (error / scale).abs_().float()
    above = rows.length // 1000 + 1
    most = share.topk(above, dim=1).values
    honest_most = (honest / scale).abs_().float().topk(above, dim=1).values.clamp_min(bars.unit)
    p999 = most[:, -1] / honest_most[:, -1]
    bad = (share > bars.p999 * honest_most[:, -1:]).sum()
    rounding = _rounding(expected, bars, least)
    shows = (_rms(honest) >= _SHOWS * rounding) & _varies(expected, bars)
    return _Chunk(
        rms=_rms(error) / rms_unit,
        p999=torch.maximum(p999, most[:, 0] / honest_most[:, 0]),
        bad=int(bad.item()),
        squares=(_rms(error) / torch.maximum(_rms(honest), rounding))[shows].square(),
    )


def _varies(expected: Tensor, bars: Bars) -> Tensor:
    """Return which rows hold more than one value: one alone is rounded well or badly by chance."""
    sizes = expected.abs()
    return sizes.amax(1) - sizes.amin(1) > bars.unit * sizes.amax(1)


def _rounding(expected: Tensor, bars: Bars, least: float) -> Tensor:
    """Return the RMS error of rounding the rows of `expected` to the floor dtype."""
    _, exponent = torch.frexp(expected)
    powers = torch.ldexp(torch.ones_like(expected), exponent - 1).masked_fill_(expected == 0, 0.0)
    return (_rms(powers) * (bars.unit / 3**0.5)).clamp_min(least)


def _roundings(dtype: torch.dtype, expected: Tensor, error: Tensor) -> tuple[int, int]:
    """Return how many elements rounding carries away from zero, and how many of them were cut."""
    if dtype.itemsize != _HALF_BYTES:
        return 0, 0
    rounded = expected.to(dtype).double()
    carried = ((rounded - expected) * expected > 0) & (expected.abs() > _SURELY_KEPT)
    carried &= rounded.isfinite()
    cut = carried & (error * expected < 0)
    return int(carried.sum().item()), int(cut.sum().item())


def _rms(rows: Tensor) -> Tensor:
    return rows.square().mean(dim=1).sqrt()


def _judge_bits(got: Tensor, expected: Tensor, unwritten: int) -> OutputError:
    """Return an error of any size for any element that is another; floats are compared by bits."""
    if got.dtype.is_floating_point:
        bits = _BITS[got.element_size()]
        got, expected = got.view(bits), expected.to(got.dtype).view(bits)
    differ = got.flatten().to(torch.int64) != expected.flatten().to(torch.int64)
    count = int(differ.sum().item())
    first = int(differ.to(torch.uint8).argmax().item())
    return OutputError(
        rms_ratio=_INTEGERS_DIFFER if count else 0.0,
        p999_ratio=_INTEGERS_DIFFER if count else 0.0,
        nan_mismatches=0,
        unwritten=unwritten,
        bad_share=count / got.numel(),
        worst_tile=f"element {first} of {got.numel()}",
        carried=0,
        cut=0,
        tiles=0,
        tile_squares=0.0,
    )


def count_unwritten(got: Tensor, expected: Tensor | None = None) -> int:
    """Return how many elements of `got` are still poison, and by `expected` should not be.

    Poison is also one of the bit patterns of NaN, and of -1, so `expected` may ask for it.
    """
    bits = got.view(_BITS[got.element_size()])
    same = bits == (255 if bits.dtype == torch.uint8 else -1)
    if expected is not None:
        wide = expected.double() if got.dtype.is_floating_point else expected
        asked_for = wide.isnan() if got.dtype.is_floating_point else wide == got
        same &= ~asked_for
    return int(same.sum().item())


def tensor_of(raw: bytearray | memoryview, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Return `raw` as a tensor that shares its memory."""
    return torch.frombuffer(raw, dtype=DTYPES[dtype]).view(shape)


def copy_bytes(values: Tensor, place: memoryview) -> None:
    """Write the bytes of `values` to `place`."""
    torch.frombuffer(place, dtype=torch.uint8).copy_(values.contiguous().view(-1).view(torch.uint8))
