"""A machine as a value: what it has and allows, measured there."""

from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.values import NonNegative, Value

Text = Annotated[str, Field(max_length=1000)]


class Tool(Value):
    """A program: where it is and what it says it is."""

    path: Text
    version: Text


class Accelerator(Value):
    """One GPU. `None` is not told."""

    uuid: Text
    name: Text
    driver: Text
    sm_mhz: int | None
    most_sm_mhz: int | None
    memory_mib: int | None


class Machine(Value):
    """What a machine has. `reads_counters` is None where there is no GPU's driver.

    `skew_s` is how far its clock is ahead of ours, once it was compared.
    """

    python: Text
    executable: Text
    packages: dict[Text, Text | None]
    headers: Text | None
    kernel: Text
    cpu_model: Text
    cores: Annotated[int, Field(ge=1)]
    governor: Text | None
    memory_bytes: NonNegative
    disk_free_bytes: NonNegative
    separation: Literal["separate-user", "container", "shared-account"]
    sandbox: Text
    freezer: Literal["cgroup-v2", "cgroup-v1", "sigstop"]
    has_bubblewrap: bool
    tools: dict[Literal["c++", "nvcc", "ncu", "haproxy", "aiperf"], Tool | None]
    gpus: Annotated[tuple[Accelerator, ...], Field(max_length=64)]
    reads_counters: bool | None
    skew_s: float | None = None

    @property
    def installed(self) -> tuple[str, ...]:
        """The packages that measure, with their versions, as one names them."""
        return tuple(f"{name} {self.packages.get(name) or 'absent'}" for name in ("torch", "numpy"))

    @property
    def compilers(self) -> tuple[str, ...]:
        """What the compilers say they are; absent ones say nothing."""
        found = (self.tools.get("c++"), self.tools.get("nvcc"))
        return tuple(tool.version for tool in found if tool is not None)
