"""A campaign as a value: one optimisation job that a person wrote and sealed."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, RootModel, model_validator
from pydantic_core import PydanticCustomError

from inferproof.core.places import DeployPlace
from inferproof.core.values import Name, Value

GpuName = Annotated[str, Field(pattern=r"^(GPU-[0-9a-f-]{1,60}|fake-[a-z0-9-]{1,32})$")]
_ODD = re.compile(r"""[\x00-\x1f\x7f-\x9f;|&$`<>"'\\\u2028\u2029]""")


def _plain_path(path: str) -> str:
    """Return a path that is one name for one place, whoever reads it."""
    odd = _ODD.search(path)
    if odd is not None:
        raise PydanticCustomError("path", "a path has no {odd} here", {"odd": repr(odd[0])})
    parts = path[1:].split("/")
    if {"", ".", ".."} & set(parts[:-1]) or parts[-1] in (".", ".."):
        raise PydanticCustomError("path", "a path has no '.', '..' or empty part")
    return path


AbsolutePath = Annotated[
    str, Field(pattern=r"^/[^\x00]", max_length=500), AfterValidator(_plain_path)
]
# No option of any program begins like these, and no shell finds anything in them.
Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$")]
User = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,31}$")]
QueueName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
Fingerprint = Annotated[str, Field(pattern=r"^SHA256:[A-Za-z0-9+/]{43}$")]
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


class Slurm(Value):
    """How jobs wait in a cluster's queue; what is timed has its node alone, unless told so."""

    partition: QueueName | None = None
    compile_partition: QueueName | None = None
    account: QueueName | None = None
    gres: Annotated[str, Field(pattern=r"^gpu(:[A-Za-z0-9_.-]{1,40})?:[1-9][0-9]?$")] | None = None
    exclusive: bool = True


class Target(Value):
    """One machine of targets.yaml. `python` runs the bench there; null is the server's own.

    `gpus` are those that jobs lease there, by UUID; `lease_dir` is where all who share them meet.
    `places` are where its engines can be deployed for users.
    `models` says where a model of a campaign lies on that machine: a folder with config.json,
    weights and tokenizer. `aiperf`, `haproxy` and `lm_eval` are programs; null finds them by name.
    A machine reached by SSH has an `address`, by itself or in the SSH configuration, and a `work`
    folder; `key` and `ssh_config` are files here, `host_key` is the only host key that counts.
    """

    host: Literal["local", "ssh", "slurm"]
    address: Address | None = None
    user: User | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    key: AbsolutePath | None = None
    host_key: Fingerprint | None = None
    ssh_config: AbsolutePath | None = None
    work: AbsolutePath | None = None
    slurm: Slurm = Slurm()
    sandbox: Literal["auto"] = "auto"
    deployer: Literal["process"] = "process"
    python: AbsolutePath | None = None
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    models: dict[Annotated[str, Field(min_length=1, max_length=200)], AbsolutePath] = {}
    aiperf: AbsolutePath | None = None
    haproxy: AbsolutePath | None = None
    lm_eval: AbsolutePath | None = None
    gpus: Annotated[tuple[GpuName, ...], Field(max_length=64)] = ()
    lease_dir: AbsolutePath | None = None
    places: Annotated[dict[Name, DeployPlace], Field(max_length=16)] = {}

    @model_validator(mode="after")
    def _fits_its_host(self) -> Self:
        reach = ("user", "port", "key", "host_key", "ssh_config")
        needed = {"ssh": ("address", "work"), "slurm": ("work", "threads"), "local": ()}
        foreign = {
            "ssh": ("slurm",),
            "slurm": ("gpus", *(reach if self.address is None else ())),
            "local": ("address", "work", "slurm", *reach),
        }
        absent = [name for name in needed[self.host] if getattr(self, name) is None]
        if absent:
            lacking = {"host": self.host, "what": " and ".join(absent)}
            raise PydanticCustomError("target", "host: {host} needs {what}", lacking)
        told = [name for name in foreign[self.host] if name in self.model_fields_set]
        if any(getattr(self, name) for name in told):
            what = {"host": self.host, "what": ", ".join(told)}
            raise PydanticCustomError("target", "host: {host} has no {what}", what)
        return self


class Inventory(RootModel[Annotated[dict[Name, Target], Field(min_length=1, max_length=64)]]):
    """targets.yaml: the only source of target names."""

    model_config = ConfigDict(frozen=True)
