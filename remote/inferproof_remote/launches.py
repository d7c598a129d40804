"""What a device-only candidate wants launched, and with which numbers for one shape.

Sizes are expressions over the contract's dims, its integer params and `sms` (multiprocessors).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias, cast

from inferproof_remote.expressions import ExpressionError, evaluate
from inferproof_remote.job import JobFormatError, as_number, as_table, as_texts
from inferproof_remote.kernel import Dims, Kernel, Size

WORKSPACE = "workspace"
MULTIPROCESSORS = "sms"
_LARGEST_GRID = ((1 << 31) - 1, 65535, 65535)
_LARGEST_BLOCK = (1024, 1024, 64)
_MOST_THREADS = 1024
_LARGEST_WORKSPACE_BYTES = 1 << 34
_LARGEST_SHARED_BYTES = 1 << 18
_LARGEST_CLUSTER = (16, 16, 16)

Argument: TypeAlias = tuple[Literal["tensor", "integer", "float"], str | int | float]
Size3: TypeAlias = tuple[int, int, int]


class UnfitLaunch(ValueError):
    """A launch does not fit the contract or any device; the candidate is to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One kernel as the manifest asks for it."""

    kernel: str
    grid: tuple[Size, ...]
    block: tuple[Size, ...]
    cluster: tuple[Size, ...] | None
    cooperative: bool
    shared_bytes: Size
    workspace_bytes: Size
    args: tuple[str, ...] | None
    constants: Mapping[str, Size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """One kernel with its numbers; a tensor or the workspace is named, not addressed.

    `constants` are fixed when it is compiled; `module` is the place of its cubin among several.
    """

    kernel: str
    grid: Size3
    block: Size3
    cluster: Size3 | None
    cooperative: bool
    shared_bytes: int
    args: tuple[Argument, ...]
    constants: Mapping[str, int] = field(default_factory=dict[str, int])
    module: int = 0

    def to_json(self) -> dict[str, object]:
        """Return this launch as plain JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """All launches of one call, in order, and the scratch memory that they share."""

    launches: tuple[Resolved, ...]
    workspace_bytes: int


def parse_launches(raw: object) -> tuple[Launch, ...]:
    """Return the manifest's `launches`.

    Raises:
        JobFormatError: they have another form.
    """
    if not isinstance(raw, list | tuple):
        raise JobFormatError(f"launches is {raw!r}, not a list")
    return tuple(_launch(as_table(each, "launch")) for each in cast("Sequence[object]", raw))


def parse_resolved(raw: object) -> Resolved:
    """Return one launch from the JSON of `Resolved`."""
    table = as_table(raw, "launch")
    cluster = table["cluster"]
    return Resolved(
        kernel=str(table["kernel"]),
        grid=_whole3(table["grid"]),
        block=_whole3(table["block"]),
        cluster=None if cluster is None else _whole3(cluster),
        cooperative=table["cooperative"] is True,
        shared_bytes=int(as_number(table["shared_bytes"], "shared_bytes")),
        args=tuple(_argument(each) for each in _list(table["args"])),
        module=int(as_number(table["module"], "module")),
    )


def resolve(launches: Sequence[Launch], kernel: Kernel, dims: Dims, *, sms: int) -> LaunchPlan:
    """Return the launches of a call under `dims` on a device with `sms` multiprocessors.

    Raises:
        UnfitLaunch: an expression has no value, or a size is one that no device can launch.
    """
    integers = {name: value for name, value in kernel.params.items() if isinstance(value, int)}
    names = {MULTIPROCESSORS: sms, **integers, **dims}
    try:
        resolved = tuple(_resolve(each, kernel, names) for each in launches)
        scratch = max((evaluate(each.workspace_bytes, names) for each in launches), default=0)
    except ExpressionError as error:
        raise UnfitLaunch(str(error)) from error
    if not 0 <= scratch <= _LARGEST_WORKSPACE_BYTES:
        raise UnfitLaunch(f"workspace_bytes is {scratch}, beyond 0..{_LARGEST_WORKSPACE_BYTES}")
    return LaunchPlan(launches=resolved, workspace_bytes=scratch)


def _resolve(launch: Launch, kernel: Kernel, names: Mapping[str, int]) -> Resolved:
    grid, block = _size3(launch.grid, names), _size3(launch.block, names)
    cluster = None if launch.cluster is None else _size3(launch.cluster, names)
    shared = evaluate(launch.shared_bytes, names)
    where = f"kernel {launch.kernel}"
    _within(grid, _LARGEST_GRID, f"{where}: grid")
    _within(block, _LARGEST_BLOCK, f"{where}: block")
    if block[0] * block[1] * block[2] > _MOST_THREADS:
        raise UnfitLaunch(f"{where}: block {block} has more than {_MOST_THREADS} threads")
    if cluster is not None:
        _within(cluster, _LARGEST_CLUSTER, f"{where}: cluster")
    if not 0 <= shared <= _LARGEST_SHARED_BYTES:
        raise UnfitLaunch(f"{where}: shared_bytes is {shared}, beyond 0..{_LARGEST_SHARED_BYTES}")
    return Resolved(
        kernel=launch.kernel,
        grid=grid,
        block=block,
        cluster=cluster,
        cooperative=launch.cooperative,
        shared_bytes=shared,
        args=tuple(_value(name, kernel, names) for name in _arguments(launch, kernel)),
        constants={name: evaluate(value, names) for name, value in launch.constants.items()},
    )


def _arguments(launch: Launch, kernel: Kernel) -> tuple[str, ...]:
    """Return the named arguments, by default those of the C ABI: tensors, dims, params."""
    if launch.args is not None:
        return launch.args
    tensors = (*kernel.inputs, *kernel.outputs)
    scratch = () if launch.workspace_bytes in (0, "0") else (WORKSPACE,)
    return (*(each.name for each in tensors), *kernel.extents, *kernel.params, *scratch)


def _value(name: str, kernel: Kernel, names: Mapping[str, int]) -> Argument:
    tensors = {each.name for each in (*kernel.inputs, *kernel.outputs)}
    if name in tensors or name == WORKSPACE:
        return ("tensor", name)
    value = kernel.params.get(name)
    if isinstance(value, float):
        return ("float", value)
    return ("integer", evaluate(name, names))


def _size3(sizes: Sequence[Size], names: Mapping[str, int]) -> Size3:
    values = [*(evaluate(size, names) for size in sizes), 1, 1]
    return values[0], values[1], values[2]


def _within(size: Size3, largest: Size3, what: str) -> None:
    if not all(1 <= extent <= most for extent, most in zip(size, largest, strict=True)):
        raise UnfitLaunch(f"{what} is {size}, beyond 1..{largest}")


def _launch(table: Mapping[str, object]) -> Launch:
    cluster, args = table.get("cluster"), table.get("args")
    return Launch(
        kernel=str(table["kernel"]),
        grid=_sizes(table["grid"]),
        block=_sizes(table["block"]),
        cluster=None if cluster is None else _sizes(cluster),
        cooperative=table.get("cooperative") is True,
        shared_bytes=_size(table.get("shared_bytes", 0)),
        workspace_bytes=_size(table.get("workspace_bytes", 0)),
        args=None if args is None else as_texts(list(_list(args)), "args"),
        constants={
            name: _size(value)
            for name, value in as_table(table.get("constants", {}), "constants").items()
        },
    )


def _argument(raw: object) -> Argument:
    match _list(raw):
        case ["tensor", str(name)]:
            return ("tensor", name)
        case ["integer", int(number)]:
            return ("integer", number)
        case ["float", float() | int() as number]:
            return ("float", float(number))
        case _:
            raise JobFormatError(f"{raw!r} is no argument of a launch")


def _sizes(raw: object) -> tuple[Size, ...]:
    sizes = tuple(map(_size, _list(raw)))
    if not 1 <= len(sizes) <= 3:
        raise JobFormatError(f"{raw!r} does not have 1 to 3 sizes")
    return sizes


def _size(raw: object) -> Size:
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise JobFormatError(f"{raw!r} is not a number or an expression")
    return raw


def _whole3(raw: object) -> Size3:
    first, second, third = (int(as_number(each, "size")) for each in _list(raw))
    return first, second, third


def _list(raw: object) -> Sequence[object]:
    if not isinstance(raw, list | tuple):
        raise JobFormatError(f"{raw!r} is not a list")
    return cast("Sequence[object]", raw)
