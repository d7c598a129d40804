"""What one grading will ask: shapes, input families, order and checks, all from the drawn bits.

The bits are drawn after the job was read, so after the candidate was committed. Calls that are
timed and calls that are not come in one row and look alike; only the plan knows which is which.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from inferproof_remote.expressions import evaluate
from inferproof_remote.kernel import Dims, Extent, Kernel, Law
from inferproof_remote.stream import Stream

Phase: TypeAlias = Literal["numerics", "near_duplicate", "repeat", "timed"]
MIXED = "mixed"
CANDIDATE, NULL = "candidate", "null"
_TELLING = ("normal", "small_integers", "outlier_channels")
_LEAST_CHECKS = 8
_OTHER_LAUNCHES = 3
_CALLS_EACH = 2
_CHECK_BUDGET_S = 1.0
# Rough cost of a full check on two cores: float64 reference, yardstick, comparison.
_CHECKED_BYTES_PER_S, _CHECKED_FLOPS_PER_S = 1.2e8, 2e10


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """One call of the candidate. `inputs` names the stream its inputs come from.

    `base` is the index of the earlier call that a near-duplicate or repeat goes back to; `arms` is
    the order in which the arms of a timed round run (the candidate alone otherwise). `launch`
    counts the candidate's processes: what it does may hang on something that it does once in each.
    """

    index: int
    phase: Phase
    dims: Mapping[str, int]
    family: str
    inputs: str
    base: int | None = None
    checked: bool = True
    arms: tuple[str, ...] = (CANDIDATE,)
    workload: int | None = None
    launch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All calls in order. Before call `settled` nothing is timed; later launches come last."""

    calls: tuple[PlannedCall, ...]
    settled: int
    timed: tuple[Mapping[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which kind of grading is asked."""

    graded: bool
    zoo: bool
    timing: bool
    baselines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Placed:
    """A call and where in the row it goes."""

    at: float
    call: PlannedCall
    base: int | None = None


def make_plan(bits: bytes, kernel: Kernel, scope: Scope) -> Plan:
    """Return what `bits` ask of a candidate for `kernel`."""
    timed = _timed_shapes(Stream(bits, "timed shapes"), kernel) if scope.timing else ()
    shapes = _shapes(Stream(bits, "shapes"), kernel, scope)
    first = _untimed_part(Stream(bits, "order"), kernel, scope, [*shapes, *timed])
    rounds = _timed_part(Stream(bits, "rounds"), kernel, scope, timed)
    extra = _mixed_in(Stream(bits, "mixed in"), kernel, [*shapes, *timed], len(rounds))
    second = Stream(bits, "interleave").shuffled([*rounds, *extra])
    others = _other_launches(Stream(bits, "launches"), kernel, [*shapes, *timed], scope)
    calls = [replace(call, index=len(first) + at) for at, call in enumerate([*second, *others])]
    return Plan(calls=(*first, *calls), settled=len(first), timed=timed)


def _other_launches(
    stream: Stream, kernel: Kernel, shapes: Sequence[Dims], scope: Scope
) -> list[PlannedCall]:
    """Return calls of further launches: a coin that is tossed at a launch is tossed again."""
    return [
        PlannedCall(
            index=0,
            phase="numerics",
            dims=stream.choice(shapes),
            family=stream.choice(_TELLING if set(_TELLING) <= set(kernel.families) else [MIXED]),
            inputs=f"launch {launch} call {at}",
            launch=launch,
        )
        for launch in range(1, 1 + _OTHER_LAUNCHES if scope.graded else 1)
        for at in range(_CALLS_EACH)
    ]


def _shapes(stream: Stream, kernel: Kernel, scope: Scope) -> list[dict[str, int]]:
    if not scope.graded:
        return [_complete(stream, kernel, dict(dims)) for dims in kernel.practice]
    drawn = [_complete(stream, kernel, {}) for _ in range(kernel.draw)]
    if scope.zoo:
        return drawn
    smallest = {name: extent.low for name, extent in kernel.extents.items()}
    shapes = [smallest, *drawn]
    for dims in drawn:
        for step in kernel.neighbours:
            name = stream.choice(sorted(kernel.laws))
            shapes.append(kernel.order({**dims, name: dims[name] + step}))
    return shapes


def _timed_shapes(stream: Stream, kernel: Kernel) -> tuple[dict[str, int], ...]:
    return tuple(
        _complete(
            stream,
            kernel,
            {name: stream.between(low, high) for name, (low, high) in ranges.items()},
        )
        for ranges in kernel.timed
    )


def _complete(stream: Stream, kernel: Kernel, given: Dims) -> dict[str, int]:
    """Return `given` with every other dim drawn; fixed dims rule over both."""
    return kernel.order(
        {
            name: given.get(name) or _draw(stream, extent, kernel.laws.get(name, "log_uniform"))
            for name, extent in kernel.extents.items()
        }
    )


def _draw(stream: Stream, extent: Extent, law: Law) -> int:
    if law == "uniform":
        return stream.between(extent.low, extent.high)
    return stream.log_between(extent.low, extent.high)


def _untimed_part(
    stream: Stream, kernel: Kernel, scope: Scope, shapes: Sequence[Dims]
) -> list[PlannedCall]:
    """Return numerics calls in random order, each near-duplicate and repeat after its base."""
    families = stream.shuffled([*kernel.families, MIXED])
    count = max(len(shapes), len(families), kernel.draw)
    placed = [
        _Placed(
            stream.below(1 << 32) / (1 << 32),
            PlannedCall(
                index=at,
                phase="numerics",
                dims=shapes[at % len(shapes)],
                family=families[at % len(families)],
                inputs=f"call {at}",
            ),
        )
        for at in range(count)
    ]
    most = 3 if scope.zoo else 5
    telling = [each for each in placed if each.call.family in _TELLING] or placed
    for number in range(stream.between(3, most)):
        base = stream.choice(telling)
        near = _after(stream, base, "near_duplicate", len(placed))
        # One comes at once: what keeps the last answer alone is asked before it forgets.
        placed.append(near if number else replace(near, at=base.at))
    for _ in range(stream.between(2, most)):
        placed.append(_after(stream, stream.choice(placed[:count]), "repeat", len(placed)))
    return _in_order(placed)


def _after(stream: Stream, base: _Placed, phase: Phase, number: int) -> _Placed:
    at = base.at + (1.0 - base.at) * (stream.below(1 << 32) + 1) / (1 << 32)
    inputs = base.call.inputs if phase == "repeat" else f"near {number}"
    call = replace(base.call, index=number, phase=phase, inputs=inputs)
    return _Placed(at, call, base.call.index)


def _in_order(placed: Sequence[_Placed]) -> list[PlannedCall]:
    ordered = sorted(placed, key=lambda each: (each.at, each.base is not None))
    index = {each.call.index: at for at, each in enumerate(ordered)}
    return [
        replace(each.call, index=at, base=None if each.base is None else index[each.base])
        for at, each in enumerate(ordered)
    ]


def _timed_part(
    stream: Stream, kernel: Kernel, scope: Scope, timed: Sequence[Dims]
) -> list[PlannedCall]:
    calls: list[PlannedCall] = []
    for workload, dims in enumerate(timed):
        checked = set(stream.sample(range(kernel.pairs), affordable_checks(kernel, dims)))
        calls += [
            PlannedCall(
                index=0,
                phase="timed",
                dims=dims,
                family="normal",
                inputs=f"timed {workload} {pair}",
                checked=pair in checked,
                arms=tuple(stream.shuffled([CANDIDATE, NULL, *scope.baselines])),
                workload=workload,
            )
            for pair in range(kernel.pairs)
        ]
    return calls


def affordable_checks(kernel: Kernel, dims: Dims) -> int:
    """Return how many of the timed outputs are checked whole: all when that is cheap."""
    moved = evaluate(kernel.roofline_bytes, dims) / _CHECKED_BYTES_PER_S
    cost_s = moved + evaluate(kernel.roofline_flops, dims) / _CHECKED_FLOPS_PER_S
    return max(_LEAST_CHECKS, min(kernel.pairs, int(_CHECK_BUDGET_S / cost_s)))


def _mixed_in(
    stream: Stream, kernel: Kernel, shapes: Sequence[Dims], rounds: int
) -> list[PlannedCall]:
    """Return untimed calls to scatter among the timed ones, so that no count tells them apart."""
    if not rounds:
        return []
    families = [*kernel.families, MIXED]
    return [
        PlannedCall(
            index=0,
            phase="numerics",
            dims=stream.choice(shapes),
            family=stream.choice(families),
            inputs=f"mixed in {at}",
        )
        for at in range(stream.between(1 + rounds // 16, 1 + rounds // 5))
    ]
