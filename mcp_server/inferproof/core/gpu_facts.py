"""What is measured of device code and of the accelerator it ran on. `None` means not measured."""

from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.values import Value

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(allow_inf_nan=False)]
Span = tuple[int, int]


class MachineCode(Value):
    """One kernel's instructions by kind, as they stand in the code, not as they run.

    `tensor` counts matrix instructions by full name, `loads` and `stores` accesses of global
    memory by their bits, `bulk` asynchronous copies, `local` accesses of spilled memory.
    """

    instructions: Count
    opcodes: dict[str, Count]
    tensor: dict[str, Count]
    loads: dict[str, Count]
    stores: dict[str, Count]
    bulk: Count
    local: Count


class Clocks(Value):
    """Least and greatest of each reading while it was timed, and every reason to throttle."""

    sm_mhz: Span | None
    memory_mhz: Span | None
    celsius: Span | None
    milliwatts: Span | None
    throttle: tuple[str, ...]
    samples: Count


class ChainFacts(Value):
    """One arm's chain on one shape: medians over all rounds.

    `call_s` is by the device's events and `call_by_host_s` by the host's clock; `write_s` is what
    the null chain writes in the kernel's place, and `null_link_s` the rest of a link.
    """

    arm: str
    dims: dict[str, int]
    cache: Literal["warm", "cold"]
    links: tuple[Count, Count]
    call_s: Seconds
    call_by_host_s: Seconds
    null_link_s: Seconds
    write_s: Seconds


class LoadedKernel(Value):
    """What a kernel needs of a multiprocessor, as the driver says once it is loaded."""

    kernel: str
    shared_bytes: Count
    local_bytes: Count
    registers: Count


class SanitizerFacts(Value):
    """What one tool of compute-sanitizer found; `errors` is None if it did not run to its end."""

    tool: Literal["memcheck", "racecheck", "initcheck", "synccheck"]
    errors: Count | None
    first: str
    why: str


class GpuFacts(Value):
    """The accelerator a candidate was judged on.

    `idle` names the kernels without whose launches the outputs were the same, in every call that
    was made again without them; None if that was not tried.
    """

    name: str
    uuid: str
    driver: str
    memory_bytes: Count
    attributes: dict[str, int]
    clocks: Clocks
    kernels: tuple[LoadedKernel, ...]
    chains: tuple[ChainFacts, ...]
    sanitizer: tuple[SanitizerFacts, ...] | None = None
    idle: tuple[str, ...] | None = None
