"""The contract's trusted functions, and the judgement of outputs by them.

Runs in the grader only; no process that maps candidate code ever holds what is computed here.
"""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TypeAlias, cast

import torch
from torch import Tensor

from inferproof_remote.inputs import Tensors
from inferproof_remote.kernel import Dims, Kernel
from inferproof_remote.numerics import Bars, Honest, OutputError, judge
from inferproof_remote.stream import Stream

Compute: TypeAlias = Callable[..., Tensors]
Errors: TypeAlias = Mapping[str, OutputError]
_SAMPLED = 1 << 15
# An earlier output that was all but zero proves nothing when it is met again.
_TOO_SMALL_TO_KNOW = 2.0**-100
_UNLIKE = 4.0  # an imprecise answer lies between near-duplicates; a stale one is clearly the other


class Oracle:
    """Knows what a call must give, and how well an honest kernel gives it."""

    def __init__(self, kernel: Kernel, folder: Path) -> None:
        self.kernel = kernel
        self._modules: dict[str, ModuleType] = {}
        self._folder = folder
        self._reference = self._function(kernel.reference)
        self._align = None if kernel.align is None else self._function(kernel.align)
        self.yardstick = self._function(kernel.yardstick)
        self.bars = Bars(
            rms=kernel.rms_bar, p999=kernel.p999_bar, floor=kernel.floor, exact=kernel.exact
        )

    def mutants(self) -> Mapping[str, Compute]:
        """Return the contract's own mutants by name."""
        module = self._module(self.kernel.reference.partition(":")[0])
        return cast("Mapping[str, Compute]", getattr(module, "MUTANTS", {}))

    def ask(self, inputs: Tensors, dims: Dims) -> "Question":
        """Return the call with these inputs, ready to judge outputs."""
        doubled = {
            name: value.double() if value.is_floating_point() else value
            for name, value in inputs.items()
        }
        return Question(
            inputs=inputs,
            dims=dims,
            params=self.kernel.params,
            expected=self._reference(**doubled, **self.kernel.params),
            yardstick=self.yardstick(**inputs, **self.kernel.params),
            align=self._align,
        )

    def _function(self, reference: str) -> Compute:
        file, _, name = reference.partition(":")
        return cast("Compute", getattr(self._module(file), name))

    def _module(self, file: str) -> ModuleType:
        if file not in self._modules:
            name = f"contract_{self.kernel.name}_{Path(file).stem}"
            spec = importlib.util.spec_from_file_location(name, self._folder / file)
            if spec is None or spec.loader is None:
                raise FileNotFoundError(self._folder / file)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._modules[file] = module
        return self._modules[file]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One call's inputs and what must come of them."""

    inputs: Tensors
    dims: Dims
    params: Mapping[str, float | int]
    expected: Tensors
    yardstick: Tensors
    align: Callable[..., Tensors] | None

    def judge(self, outputs: Tensors, bars: Bars, *, poisoned: bool = False) -> Errors:
        """Return how far each of `outputs` is from what it must be."""
        expected = self._expected_given(outputs)
        aligned = self._expected_given(self.yardstick) if self.align else None
        return {
            name: judge(
                got,
                Honest(
                    expected=expected[name],
                    yardstick=self.yardstick[name],
                    yardstick_of=None if aligned is None else aligned[name],
                ),
                bars,
                poisoned=poisoned,
            )
            for name, got in outputs.items()
        }

    def _expected_given(self, outputs: Tensors) -> Tensors:
        if self.align is None:
            return self.expected
        return self.align(self.inputs, self.params, self.dims, outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Elements of one output, flat; an element's size is at least the RMS of its row.

    Of its row, not of all: beside one huge row, any two small ones would look alike.
    """

    values: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, value: Tensor) -> "_Seen":
        """Return all elements of `value`."""
        rows = torch.nan_to_num(value.double(), 0.0, 0.0, 0.0)
        sizes = torch.maximum(rows.abs(), rows.square().mean(-1, keepdim=True).sqrt())
        is_narrow = value.is_floating_point() and value.element_size() == 1
        kept = value.float() if is_narrow else value
        return cls(values=kept.flatten(), sizes=sizes.flatten())


class History:
    """Remembers what earlier calls should have given, to name an output that came too late.

    Whole outputs are kept while they are small or something nearly the same will be asked again;
    of the others a sample of secret places.
    """

    def __init__(self, bits: bytes) -> None:
        self._bits = bits
        self._kept: dict[tuple[str, torch.Size], list[tuple[int, _Seen]]] = {}
        self._places: dict[int, Tensor] = {}

    def add(self, index: int, yardstick: Tensors, *, whole: bool) -> None:
        """Remember call `index` by the output of the yardstick."""
        for name, value in yardstick.items():
            kept = self._kept.setdefault((name, value.shape), [])
            seen = _Seen.of(value)
            kept.append((index, seen if whole else self._sample(seen)))

    def explain(self, outputs: Tensors, question: Question, errors: Errors, bars: Bars) -> Errors:
        """Return `errors`, with the earlier call that a wrong output belongs to."""
        return {
            name: error
            if error.within(bars)
            else replace(
                error, stale_of=self._match(name, outputs[name], question.yardstick[name], bars)
            )
            for name, error in errors.items()
        }

    def _match(self, name: str, got: Tensor, wanted: Tensor, bars: Bars) -> int | None:
        """Return the earlier call whose output `got` equals wherever it is wrong for its own."""
        whole = _Seen.of(got), _Seen.of(wanted)
        sampled = self._sample(whole[0]), self._sample(whole[1])
        for index, earlier in self._kept.get((name, got.shape), []):
            mine, own = whole if earlier.values.numel() == got.numel() else sampled
            wrong = _apart(mine, own, bars)
            known = earlier.values[wrong].double()
            tells = (
                known.numel()
                and known.abs().max().item() > _TOO_SMALL_TO_KNOW
                and _apart(own, earlier, bars, times=_UNLIKE)[wrong].any()
            )
            if tells and not _apart(mine, earlier, bars)[wrong].any():
                return index
        return None

    def _sample(self, seen: _Seen) -> _Seen:
        count = seen.values.numel()
        if count <= _SAMPLED:
            return seen
        if count not in self._places:
            generator = torch.Generator()
            generator.manual_seed(Stream(self._bits, f"sample {count}").word() >> 1)
            self._places[count] = torch.randint(count, (_SAMPLED,), generator=generator)
        places = self._places[count]
        return _Seen(values=seen.values[places], sizes=seen.sizes[places])


def _apart(left: _Seen, right: _Seen, bars: Bars, *, times: float = 1.0) -> Tensor:
    """Return where two outputs differ by more than `times` what two honest kernels would."""
    allowed = bars.p999 * bars.unit if left.values.is_floating_point() else 0.0
    return (left.values.double() - right.values.double()).abs() > times * allowed * right.sizes
