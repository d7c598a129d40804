"""A campaign as a value: one optimisation job that a person wrote and sealed."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, RootModel

from inferproof.core.values import Name, Value

GpuName = Annotated[str, Field(pattern=r"^(GPU-[0-9a-f-]{1,60}|fake-[a-z0-9-]{1,32})$")]
AbsolutePath = Annotated[str, Field(pattern=r"^/[^\x00]{1,500}$")]
Positive = Annotated[float, Field(gt=0, le=1e12)]


class Model(Value):
    """The model being served: a name and the config fields that contracts read."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    config: dict[str, Annotated[int, Field(ge=1, le=1 << 31)]] = {}


class Component(Value):
    """One contract of the campaign and what it must reach."""

    contract: Name
    speedup_at_least: Annotated[float, Field(gt=0, le=1000)] = 1.02


class Approvals(Value):
    """Which actions wait for a person, and how long an approval lives."""

    required_for: tuple[Literal["promote"], ...] = ("promote",)
    expire_after_h: Annotated[float, Field(gt=0, le=8760)] = 72.0


class Budget(Value):
    """What the campaign may spend."""

    job_wall_s: Annotated[float, Field(gt=0, le=86400)] = 600.0
    jobs: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    accelerator_hours: Positive | None = None


class Limits(Value):
    """What one candidate process may use on the bench."""

    memory_mib: Annotated[int, Field(ge=64, le=1 << 22)] = 4096
    tmp_mib: Annotated[int, Field(ge=1, le=1 << 20)] = 256
    processes: Annotated[int, Field(ge=4, le=4096)] = 64
    call_s: Annotated[float, Field(gt=0, le=3600)] = 20.0


class Campaign(Value):
    """campaign.yaml. File form: docs/formats.md.

    `accelerator` is the only model, as its driver names it, whose graded kernels may be promoted.
    """

    kind: Literal["campaign"]
    name: Name
    goal: Annotated[str, Field(min_length=1, max_length=4000)]
    model: Model
    target: Name = "local"
    accelerator: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    components: Annotated[tuple[Component, ...], Field(min_length=1, max_length=64)]
    approvals: Approvals = Approvals()
    budget: Budget = Budget()
    limits: Limits = Limits()
    notify: tuple[str, ...] = ()


class Target(Value):
    """One machine of targets.yaml. `python` runs the bench there; null is the server's own.

    `gpus` are those that jobs lease there, by UUID; `lease_dir` is where all who share them meet.
    `models` says where a model of a campaign lies on that machine: a folder with config.json,
    weights and tokenizer. `aiperf` and `haproxy` are programs; null finds them by name.
    """

    host: Literal["local"]
    sandbox: Literal["auto"] = "auto"
    deployer: Literal["process"] = "process"
    python: AbsolutePath | None = None
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    models: dict[Annotated[str, Field(min_length=1, max_length=200)], AbsolutePath] = {}
    aiperf: AbsolutePath | None = None
    haproxy: AbsolutePath | None = None
    gpus: Annotated[tuple[GpuName, ...], Field(max_length=64)] = ()
    lease_dir: AbsolutePath | None = None


class Inventory(RootModel[Annotated[dict[Name, Target], Field(min_length=1, max_length=64)]]):
    """targets.yaml: the only source of target names."""

    model_config = ConfigDict(frozen=True)
