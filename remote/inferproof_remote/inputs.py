"""Inputs of every family, drawn from the bits: fast for large tensors, unknowable beforehand.

Every element is a draw of its own, scaled as the family asks: no row tells of another, so nothing
can be kept of an input that is smaller than the input. A family is a property of rows of the last
axis; `mixed` gives each row its own family.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from inferproof_remote.draws import MIXED
from inferproof_remote.expressions import evaluate
from inferproof_remote.kernel import Dims, Kernel, TensorShape
from inferproof_remote.narrow import PACKED, SCALES, in_format, values_a_column
from inferproof_remote.numerics import DTYPES
from inferproof_remote.stream import Stream

Tensors: TypeAlias = Mapping[str, Tensor]
_CHANGED = (2, 4)
_FAR_OFF = (0x77, 0xFF)  # two largest numbers of four bits, and the two most negative ones


class InputMaker:
    """Makes inputs for one grading, from its bits."""

    def __init__(self, bits: bytes, kernel: Kernel) -> None:
        self._bits = bits
        self._kernel = kernel

    def make(self, name: str, dims: Dims, family: str) -> dict[str, Tensor]:
        """Return all inputs under `dims`, as the stream `name` draws them."""
        return {
            tensor.name: self._tensor(
                tensor, dims, self._families(tensor, family), self._generator(name, tensor)
            )
            for tensor in self._kernel.inputs
        }

    def _generator(self, name: str, tensor: TensorShape) -> torch.Generator:
        """Return a generator of its own: what one tensor shows tells nothing of another."""
        generator = torch.Generator()
        generator.manual_seed(Stream(self._bits, f"inputs {name} {tensor.name}").word() >> 1)
        return generator

    def _families(self, tensor: TensorShape, family: str) -> tuple[str, ...]:
        """Return what a row of `tensor` may be.

        Weights are never subnormal: their product with subnormal data is zero, whatever is wrong.
        """
        named = self._kernel.families if family == MIXED else (family,)
        if tensor.name not in self._kernel.prepare:
            return named
        return tuple(each for each in named if each != "denormal") or ("normal",)

    def make_near(self, name: str, base: Tensors) -> dict[str, Tensor]:
        """Return `base` with a few elements changed, at places that the stream `name` draws."""
        stream = Stream(self._bits, f"near {name}")
        changeable = [each for each in self._kernel.inputs if each.has_families]
        working = [each for each in changeable if each.name not in self._kernel.prepare]
        near = dict(base)
        for tensor in working or changeable:
            near[tensor.name] = _change(base[tensor.name].clone(), tensor.dtype, stream)
        return near

    def _tensor(
        self,
        tensor: TensorShape,
        dims: Dims,
        families: tuple[str, ...],
        generator: torch.Generator,
    ) -> Tensor:
        shape = tensor.extents(dims)
        dtype = DTYPES[tensor.dtype]
        if not tensor.has_families:
            low, high = (evaluate(bound, dims) for bound in tensor.span or (0, 2))
            return _between(low, high, torch.empty(shape, dtype=dtype), generator)
        columns = shape[-1] * values_a_column(tensor.dtype)
        source = _Source(torch.Size((*shape[:-1], columns)), dtype, generator)
        values = FAMILIES[families[0]](source) if len(families) == 1 else _mixed(source, families)
        return in_format(values, tensor.dtype, dtype).view(shape)


def _between(low: int, high: int, values: Tensor, generator: torch.Generator) -> Tensor:
    """Fill `values` with numbers uniform in [low, high)."""
    if not values.is_floating_point():
        return values.random_(low, high, generator=generator)
    below = torch.nextafter(torch.tensor(float(high)), torch.tensor(float(low))).item()
    return values.uniform_(low, high, generator=generator).clamp_(max=below)


class _Source:
    """Random rows and scales of one size, for a family to combine."""

    def __init__(self, shape: torch.Size, dtype: torch.dtype, generator: torch.Generator) -> None:
        self.columns = shape[-1]
        self.rows = shape.numel() // self.columns
        self.dtype = dtype
        self.generator = generator

    def part(self, rows: int) -> "_Source":
        """Return a source of fewer rows."""
        return _Source(torch.Size((rows, self.columns)), self.dtype, self.generator)

    def normal(self) -> Tensor:
        """Return [rows, columns] normal values."""
        return torch.randn(self.rows, self.columns, generator=self.generator)

    def signed_powers(self, low: float, high: float) -> Tensor:
        """Return [rows, columns] of 2**u with either sign, for u uniform in [low, high)."""
        drawn = torch.rand(self.rows, self.columns, generator=self.generator).sub_(0.5)
        sizes = drawn.abs().mul_(2 * (high - low)).add_(low).exp2_()
        return sizes.copysign_(drawn)

    def integers(self, low: int, high: int) -> Tensor:
        """Return [rows, columns] whole numbers in [low, high)."""
        size = (self.rows, self.columns)
        return torch.empty(size).random_(low, high, generator=self.generator)

    def power(self, low: float, high: float, *size: int) -> Tensor:
        """Return 2**u for u uniform in [low, high)."""
        drawn = torch.rand(*size, generator=self.generator, dtype=torch.float64)
        return (low + (high - low) * drawn).exp2_().float()

    def row_scale(self, low: float, high: float) -> Tensor:
        """Return one power of two per row."""
        return self.power(low, high, self.rows, 1)


def _mixed(source: _Source, families: tuple[str, ...]) -> Tensor:
    """Give each row one of `families`."""
    values = torch.empty(source.rows, source.columns)
    owner = torch.randint(len(families), (source.rows,), generator=source.generator)
    for number, family in enumerate(families):
        mine = (owner == number).nonzero().flatten()
        if mine.numel():
            values[mine] = FAMILIES[family](source.part(mine.numel()))
    return values


def _normal(source: _Source) -> Tensor:
    return source.normal().mul_(source.power(-1, 1, 1))


def _log_uniform(source: _Source) -> Tensor:
    return source.signed_powers(-6, 6).mul_(source.row_scale(-12, 8))


def _outlier_channels(source: _Source) -> Tensor:
    scale = torch.ones(source.columns)
    chosen = torch.randperm(source.columns, generator=source.generator)
    chosen = chosen[: 1 + source.columns // 128]
    scale[chosen] = source.power(4, 7, chosen.numel())
    return source.normal().mul_(scale)


def _near_cancelling(source: _Source) -> Tensor:
    """Neighbours of almost equal size and opposite sign."""
    signs = torch.ones(source.columns)
    signs[1::2] = -1.0
    near_one = source.normal().mul_(2.0**-5).add_(1.0)
    return near_one.mul_(source.row_scale(-2, 4)).mul_(signs)


def _constant(source: _Source) -> Tensor:
    """One number a row, not beyond 8.

    Far below zero a sigmoid is all but nothing. Where no neighbour is larger, as here, a drawn row
    would tell ways to compute it apart that nobody else can.
    """
    signs = torch.randn(source.rows, 1, generator=source.generator)
    drawn = source.row_scale(-6, 3).copysign(signs)
    return drawn.expand(source.rows, source.columns).clone()


def _denormal(source: _Source) -> Tensor:
    """Rows that reach from subnormal numbers to small normal ones, and some rows of zeros.

    Most of a row's weight is on its normal numbers, so that flushing the others is not an error.
    """
    limits = torch.finfo(source.dtype if source.dtype.is_floating_point else torch.float8_e4m3fn)
    smallest_normal = max(limits.smallest_normal, 2.0**-126)
    zeroed = torch.rand(source.rows, 1, generator=source.generator) < 0.125
    rows = source.signed_powers(-8, 24).double().mul_(smallest_normal)
    return rows.masked_fill_(zeroed, 0.0).float()


def _small_integers(source: _Source) -> Tensor:
    return source.integers(-4, 5)


FAMILIES: Mapping[str, Callable[[_Source], Tensor]] = {
    "normal": _normal,
    "log_uniform": _log_uniform,
    "outlier_channels": _outlier_channels,
    "near_cancelling": _near_cancelling,
    "constant": _constant,
    "denormal": _denormal,
    "small_integers": _small_integers,
}


def _change(values: Tensor, dtype: str, stream: Stream) -> Tensor:
    """Change a few elements of `values` in place to something far off for their row.

    As few as two: the fewer, the less likely does a cache that samples its key see any.
    """
    rows = values.view(-1, values.shape[-1])
    for _ in range(stream.between(*_CHANGED)):
        row, column = stream.below(rows.shape[0]), stream.below(rows.shape[1])
        if dtype == PACKED:
            rows[row, column] = _FAR_OFF[int(rows[row, column].item()) & 8 == 0]
            continue
        size = rows[row].double().square().mean().sqrt().item() or 1.0
        now = rows[row, column].double().item()
        if dtype in SCALES:
            rows[row, column] = size / 4.0 if now > size else 4.0 * size
        else:
            rows[row, column] = (-3.0 if now > 0 else 3.0) * size
    return values
