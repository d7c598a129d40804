"""What a device-only candidate wants launched, and with which numbers for one shape.

Sizes are expressions over the contract's dims, its integer params and `sms` (multiprocessors).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias, cast

from inferproof_remote.expressions import ExpressionError, evaluate
from inferproof_remote.job import JobFormatError, as_number, as_table, as_texts
from inferproof_remote.kernel import Dims, Kernel, Size
from inferproof_remote.tensor_maps import MapAsked, TensorMap, UnfitMap, parse_maps, resolve_map

WORKSPACE, PREPARED = "workspace", "prepared"
MULTIPROCESSORS = "sms"
_LARGEST_GRID = ((1 << 31) - 1, 65535, 65535)
_LARGEST_BLOCK = (1024, 1024, 64)
_MOST_THREADS = 1024
_LARGEST_WORKSPACE_BYTES = 1 << 34
_LARGEST_SHARED_BYTES = 1 << 18
_LARGEST_CLUSTER = (16, 16, 16)

Argument: TypeAlias = tuple[Literal["tensor", "map", "integer", "float"], str | int | float]
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
class Asked:
    """All that a manifest says of launches.

    `prepare` is launched, untimed, whenever the contract's `prepare` inputs changed, and fills the
    memory `prepared`, which the launches of a call may read.
    """

    launches: tuple[Launch, ...]
    prepare: tuple[Launch, ...] = ()
    prepared_bytes: Size = 0
    maps: Mapping[str, MapAsked] = field(default_factory=dict[str, MapAsked])


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """All launches of one call, in order, and the scratch memory that they share."""

    launches: tuple[Resolved, ...]
    workspace_bytes: int
    prepare: tuple[Resolved, ...] = ()
    prepared_bytes: int = 0
    maps: Mapping[str, TensorMap] = field(default_factory=dict[str, TensorMap])

    def to_json(self) -> dict[str, object]:
        """Return the plan as part of a request."""
        return {
            "launches": [each.to_json() for each in self.launches],
            "workspace_bytes": self.workspace_bytes,
            "prepare": [each.to_json() for each in self.prepare],
            "prepared_bytes": self.prepared_bytes,
            "maps": {name: each.to_json() for name, each in self.maps.items()},
        }


def parse_asked(manifest: Mapping[str, object]) -> Asked:
    """Return what the manifest says of launches.

    Raises:
        JobFormatError: it has another form.
    """
    return Asked(
        launches=parse_launches(manifest["launches"]),
        prepare=parse_launches(manifest.get("prepare_launches", ())),
        prepared_bytes=_size(manifest.get("prepared_bytes", 0)),
        maps=parse_maps(manifest.get("tensor_maps", {})),
    )


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


def resolve(asked: Asked, kernel: Kernel, dims: Dims, *, sms: int) -> LaunchPlan:
    """Return the launches of a call under `dims` on a device with `sms` multiprocessors.

    Raises:
        UnfitLaunch: an expression has no value, or a size is one that no device can launch.
    """
    integers = {name: value for name, value in kernel.params.items() if isinstance(value, int)}
    names = {MULTIPROCESSORS: sms, **integers, **dims}
    maps = tuple(asked.maps)
    try:
        plan = LaunchPlan(
            launches=tuple(_resolve(each, kernel, names, maps) for each in asked.launches),
            workspace_bytes=max(
                (evaluate(each.workspace_bytes, names) for each in asked.launches), default=0
            ),
            prepare=tuple(_resolve(each, kernel, names, maps) for each in asked.prepare),
            prepared_bytes=evaluate(asked.prepared_bytes, names),
            maps={name: resolve_map(each, kernel, names) for name, each in asked.maps.items()},
        )
    except (ExpressionError, UnfitMap) as error:
        raise UnfitLaunch(str(error)) from error
    for what in ("workspace_bytes", "prepared_bytes"):
        size = plan.workspace_bytes if what == "workspace_bytes" else plan.prepared_bytes
        if not 0 <= size <= _LARGEST_WORKSPACE_BYTES:
            raise UnfitLaunch(f"{what} is {size}, beyond 0..{_LARGEST_WORKSPACE_BYTES}")
    _check_prepare(plan, kernel)
    return plan


def _check_prepare(plan: LaunchPlan, kernel: Kernel) -> None:
    """Raise UnfitLaunch if what is not timed is given more than the contract lets it have."""
    for launch in plan.prepare:
        named = {str(value) for kind, value in launch.args if kind == "tensor"}
        named |= {plan.maps[str(value)].tensor for kind, value in launch.args if kind == "map"}
        if named - {*kernel.prepare, PREPARED}:
            more = ", ".join(sorted(named - {*kernel.prepare, PREPARED}))
            raise UnfitLaunch(f"kernel {launch.kernel} is not timed and may not be given {more}")


def _resolve(
    launch: Launch, kernel: Kernel, names: Mapping[str, int], maps: Sequence[str] = ()
) -> Resolved:
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
        args=tuple(
            ("map", name) if name in maps else _value(name, kernel, names)
            for name in _arguments(launch, kernel)
        ),
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
    if name in tensors or name in (WORKSPACE, PREPARED):
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
        case ["map", str(name)]:
            return ("map", name)
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
