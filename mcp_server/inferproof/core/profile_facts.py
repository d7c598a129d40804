"""What a profiler counted of device code, and the one bottleneck that the counters prove."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from inferproof.core.values import NonNegative, Value

Bound: TypeAlias = Literal[
    "launch",
    "tensor_idle",
    "spills",
    "uncoalesced",
    "bank_conflicts",
    "memory",
    "tensor",
    "compute",
    "occupancy",
    "latency",
    "inconclusive",
]
Measured = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class Bottleneck(Value):
    """What bounds the hottest launch, the numbers that prove it, and the three best levers.

    `inconclusive` when counters are withheld or missing; `proof` then says what to do.
    """

    name: Bound
    kernel: str
    proof: tuple[str, ...]
    levers: tuple[str, ...] = ()


class Roofline(Value):
    """The least time of a call, by ceilings measured in the same job and by the datasheet.

    `bound` is the nearest ceiling: `memory`, `cache` (all fits there) or `compute`.
    """

    bound: Literal["memory", "cache", "compute"]
    least_s: NonNegative
    share: NonNegative
    datasheet_least_s: NonNegative | None
    datasheet_share: NonNegative | None
    datasheet_memory_bytes_per_s: NonNegative | None
    datasheet_flops_per_s: NonNegative | None


class CountedLaunch(Value):
    """One hot launch: its counters, and for what its warps wait, as shares of their time."""

    launch: Annotated[int, Field(ge=0)]
    kernel: str
    share: Share
    counters: dict[str, Measured]
    stalls: dict[str, Share]
    not_found: tuple[str, ...] = ()


class DeviceProfile(Value):
    """A call of device code under Nsight Compute, caches cold and clocks as they are.

    `floor_s` is what as many launches take that only move one word. Times of calls are from a
    graph without the profiler.
    """

    name: str
    driver: str
    tool: str
    launches: Annotated[int, Field(ge=1)]
    floor_s: NonNegative | None
    bottleneck: Bottleneck
    roofline: Roofline | None
    kernels: tuple[CountedLaunch, ...]
