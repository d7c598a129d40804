"""Known-bad implementations, judged like a candidate: what a gate must refuse before it may pass.

They are computed by trusted code from drawn inputs and never enter a sandbox. Their calls are
drawn for every family, at sizes small enough that arming a gate costs seconds.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from inferproof_remote.call_facts import CallRecord, Json
from inferproof_remote.draws import MIXED
from inferproof_remote.inputs import InputMaker, Tensors
from inferproof_remote.kernel import Kernel
from inferproof_remote.oracle import Compute, History, Oracle, Question
from inferproof_remote.stream import Stream

_LARGEST_CALL = 1 << 18
_ROUNDS = 2
# Significand bits of the next lower class: float32, TF32 and float16, bfloat16, 8-bit and 4-bit.
_LOWER_BITS = {
    torch.float64: 24,
    torch.float32: 11,
    torch.float16: 8,
    torch.bfloat16: 4,
    torch.float8_e4m3fn: 2,
    torch.float8_e5m2: 2,
    torch.float8_e8m0fnu: 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    index: int
    family: str
    phase: str
    question: Question
    earlier: Tensors | None


Mutant: TypeAlias = Callable[[_Case, Oracle], Tensors]


def mutant_facts(bits: bytes, oracle: Oracle, maker: InputMaker) -> list[Json]:
    """Return, for each mutant that the contract names, its outputs' errors on every drawn call.

    Raises:
        KeyError: the contract names a mutant that nobody defines.
    """
    own = {name: _adapt(compute) for name, compute in oracle.mutants().items()}
    known = {**GENERIC, **own}
    found: dict[str, list[Json]] = {name: [] for name in oracle.kernel.mutants}
    history = History(bits)
    for case in _cases(bits, oracle, maker):
        for name in found:
            outputs = known[name](case, oracle)
            errors = case.question.judge(outputs, oracle.bars)
            explained = history.explain(outputs, case.question, errors, oracle.bars)
            found[name].append(
                CallRecord(
                    index=case.index,
                    phase=case.phase,
                    dims=case.question.dims,
                    family=case.family,
                    seconds=None,
                    outputs=explained,
                ).to_json()
            )
        history.add(case.index, case.question.yardstick, whole=True)
    return [{"name": name, "calls": calls} for name, calls in found.items()]


def _cases(bits: bytes, oracle: Oracle, maker: InputMaker) -> Iterator[_Case]:
    stream = Stream(bits, "mutant calls")
    families = [*oracle.kernel.families, MIXED]
    earlier: Tensors | None = None
    for index, family in enumerate(families * _ROUNDS):
        dims = small_dims(stream, oracle.kernel, _LARGEST_CALL)
        inputs = maker.make(f"mutants {index}", dims, family)
        question = oracle.ask(inputs, dims)
        yield _Case(
            index=2 * index, family=family, phase="numerics", question=question, earlier=earlier
        )
        near = oracle.ask(maker.make_near(f"mutants {index}", inputs), dims)
        yield _Case(
            index=2 * index + 1,
            family=family,
            phase="near_duplicate",
            question=near,
            earlier=question.yardstick,
        )
        earlier = near.yardstick


def small_dims(stream: Stream, kernel: Kernel, most: int) -> dict[str, int]:
    """Return drawn dims, with what can be drawn halved until no tensor has over `most` elements."""
    dims = {name: stream.log_between(e.low, e.high) for name, e in kernel.extents.items()}
    while _elements(kernel, dims) > most:
        halved = {name: kernel.extents[name].clip(size // 2) for name, size in dims.items()}
        if halved == dims:
            break
        dims = halved
    return dims


def _elements(kernel: Kernel, dims: Mapping[str, int]) -> int:
    tensors = (*kernel.inputs, *kernel.outputs)
    return max(torch.Size(tensor.extents(dims)).numel() for tensor in tensors)


def _adapt(compute: Compute) -> Mutant:
    def run(case: _Case, oracle: Oracle) -> Tensors:
        return compute(**case.question.inputs, **oracle.kernel.params)

    return run


def _zeros(case: _Case, oracle: Oracle) -> Tensors:
    del oracle
    return {name: torch.zeros_like(value) for name, value in case.question.yardstick.items()}


def _mean(case: _Case, oracle: Oracle) -> Tensors:
    del oracle
    return {
        name: torch.full_like(value, value.double().nanmean().item())
        for name, value in case.question.yardstick.items()
    }


def _copy_input(case: _Case, oracle: Oracle) -> Tensors:
    """Copy the inputs of an output's size, in order; else repeat the first input to fit."""
    del oracle
    question = case.question
    copies: dict[str, Tensor] = {}
    for place, (name, value) in enumerate(question.yardstick.items()):
        alike = [each for each in question.inputs.values() if each.numel() == value.numel()]
        source = alike[place % len(alike)] if alike else next(iter(question.inputs.values()))
        copies[name] = _fit(source, value)
    return copies


def _stale(case: _Case, oracle: Oracle) -> Tensors:
    del oracle
    earlier = case.earlier
    if earlier is None:
        return case.question.yardstick
    return {name: _fit(earlier[name], value) for name, value in case.question.yardstick.items()}


def _half(case: _Case, oracle: Oracle) -> Tensors:
    """Leave the second half of the rows (of the elements, for one row) at zero."""
    del oracle
    outputs: dict[str, Tensor] = {}
    for name, value in case.question.yardstick.items():
        done = value.clone()
        half = done if done.shape[0] > 1 else done.view(-1)
        half[half.shape[0] // 2 :] = 0
        outputs[name] = done
    return outputs


def _cut_short(case: _Case, oracle: Oracle) -> Tensors:
    """Cut the exact outputs to their dtype where they should be rounded."""
    del oracle
    outputs: dict[str, Tensor] = {}
    for name, value in case.question.yardstick.items():
        exact = case.question.expected[name]
        rounded = exact.to(value.dtype)
        outputs[name] = rounded
        if value.is_floating_point() and value.element_size() == 2:
            carried = (rounded.double().abs() > exact.abs()) & rounded.isfinite()
            # One less in the bits of a float is one step towards zero, whatever its sign.
            outputs[name] = torch.where(
                carried, (rounded.view(torch.int16) - 1).view(value.dtype), rounded
            )
    return outputs


def _one_bit_less(case: _Case, oracle: Oracle) -> Tensors:
    """Round the exact outputs to one significand bit less than their dtype has."""
    del oracle
    outputs: dict[str, Tensor] = {}
    for name, value in case.question.yardstick.items():
        outputs[name] = value
        if value.is_floating_point():
            exact = case.question.expected[name]
            bits = -math.log2(torch.finfo(value.dtype).eps)
            outputs[name] = _with_bits(exact, bits).to(value.dtype)
    return outputs


def _lower_precision(case: _Case, oracle: Oracle) -> Tensors:
    inputs = {name: _rounded(value) for name, value in case.question.inputs.items()}
    outputs = oracle.yardstick(**inputs, **oracle.kernel.params)
    return {name: _rounded(value) for name, value in outputs.items()}


def _rounded(value: Tensor) -> Tensor:
    if not value.is_floating_point():
        return value
    return _with_bits(value.double(), _LOWER_BITS[value.dtype]).to(value.dtype)


def _with_bits(value: Tensor, bits: float) -> Tensor:
    mantissa, exponent = torch.frexp(value)
    steps = 2.0**bits
    return torch.ldexp(torch.round(mantissa * steps) / steps, exponent)


def _fit(source: Tensor, like: Tensor) -> Tensor:
    flat = source.flatten()
    repeats = -(-like.numel() // flat.numel())
    return flat.repeat(repeats)[: like.numel()].view(like.shape).to(like.dtype)


GENERIC: Mapping[str, Mutant] = {
    "zeros": _zeros,
    "mean": _mean,
    "copy_input": _copy_input,
    "stale": _stale,
    "half": _half,
    "lower_precision": _lower_precision,
    "cut_short": _cut_short,
    "one_bit_less": _one_bit_less,
}
