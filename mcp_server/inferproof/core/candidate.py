"""A candidate: an immutable snapshot of sources and the manifest that says how to use them."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from inferproof.core.contract import DType
from inferproof.core.errors import UsageError
from inferproof.core.values import Digest, Name, Value

RelativePath = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$", max_length=200),
]
# What loads code into the compiler, runs another program, or changes where it looks or writes.
REFUSED_FLAGS = re.compile(
    r"^--?(fplugin|fpass-plugin|load|Xclang|B|specs|wrapper|ccbin|compiler-bindir|sysroot|isysroot"
    r"|fuse-ld|W[alp],|Xlinker|Xassembler|Xpreprocessor|Xcompiler|pre-include|include|imacros|o|x"
    r"|save-temps|dump|fdump|options-file|T)"
)


def _only_tunes(flag: str) -> str:
    if REFUSED_FLAGS.match(flag):
        raise ValueError(f"{flag} loads code or changes paths; flags may only tune the code")
    return flag


Flag = Annotated[str, Field(pattern=r"^-[A-Za-z0-9_=+.,:-]{1,100}$"), AfterValidator(_only_tunes)]


Symbol = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")]
Size = Annotated[str, Field(min_length=1, max_length=200)] | Annotated[int, Field(ge=0)]
Sizes = Annotated[tuple[Size, ...], Field(min_length=1, max_length=3)]


class Launch(Value):
    """One kernel of a device-only candidate and how our launcher launches it.

    Sizes are expressions over the contract's dims, its integer params and `sms`. `args` names
    tensors, params, `workspace` or expressions; without it, they are those of the C ABI. Of triton,
    `constants` are its `tl.constexpr` arguments (and `num_stages`), and `block` tells its warps.
    """

    kernel: Symbol
    grid: Sizes
    block: Sizes
    cluster: Sizes | None = None
    cooperative: bool = False
    shared_bytes: Size = 0
    workspace_bytes: Size = 0
    args: (
        Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=64)] | None
    ) = None
    constants: Annotated[dict[Symbol, Size], Field(max_length=32)] = {}


class TensorMap(Value):
    """What a bulk copy of tiles needs to know of a tensor; axes as in contracts, outermost first.

    `shape` and `dtype` are the tensor's own unless it is `prepared` or `workspace`.
    """

    tensor: Symbol
    dtype: DType | None = None
    shape: Annotated[tuple[Size, ...], Field(min_length=1, max_length=5)] | None = None
    box: Annotated[tuple[Size, ...], Field(min_length=1, max_length=5)]
    swizzle: Literal[0, 32, 64, 128] = 0


class Manifest(Value):
    """candidate.yaml. File form and C ABI: docs/formats.md.

    `entry` is the C function or the Python function in `source`; `prepare` optionally names one
    that is called, untimed, with the contract's `prepare` inputs. Of cuda, device code alone is
    judged: `launches` says what one call launches, in order, and `entry` is one of its kernels.
    `prepare_launches` are its untimed step: they get the contract's `prepare` inputs alone, and
    fill `prepared`. `tensor_maps` are arguments by name.
    """

    contract: Name
    language: Literal["cpp", "cuda", "python", "triton"]
    source: RelativePath
    entry: Symbol
    prepare: Symbol | None = None
    flags: Annotated[tuple[Flag, ...], Field(max_length=32)] = ()
    archs: Annotated[
        tuple[Annotated[str, Field(pattern=r"^sm_[0-9]{2,3}[af]?$")], ...], Field(max_length=16)
    ] = ()
    launches: Annotated[tuple[Launch, ...], Field(max_length=32)] = ()
    prepare_launches: Annotated[tuple[Launch, ...], Field(max_length=32)] = ()
    prepared_bytes: Size = 0
    tensor_maps: Annotated[dict[Symbol, TensorMap], Field(max_length=16)] = {}
    parent: Digest | None = None
    note: Annotated[str, Field(max_length=2000)] = ""

    @model_validator(mode="after")
    def _prepares_by_another_function(self) -> "Manifest":
        if self.prepare == self.entry:
            raise ValueError("`prepare` is untimed and cannot be the `entry` that is timed")
        return self

    @model_validator(mode="after")
    def _launches_fit(self) -> "Manifest":
        more = (self.prepare_launches, self.prepared_bytes, self.tensor_maps)
        if any(more) and (self.language != "cuda" or not self.launches):
            raise ValueError(
                "`prepare_launches`, `prepared_bytes`, `tensor_maps` are for cuda with `launches`"
            )
        if not self.launches:
            return self
        if self.language not in ("cuda", "triton") or self.prepare is not None:
            raise ValueError("`launches` is for cuda and triton, and without `prepare`")
        if self.entry not in {launch.kernel for launch in self.launches}:
            raise ValueError("`entry` must be the kernel of one of the launches")
        return self


EngineOptions = Annotated[
    dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")], bool | int | float | str],
    Field(max_length=64),
]
Argument = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]


Quantisation = Literal[
    "none",
    "bf16",
    "fp8_per_tensor",
    "fp8_per_channel",
    "int8_per_channel",
    "int4_group_32",
    "int4_group_64",
    "int4_group_128",
    "nvfp4",
    "mxfp4",
]
"""What an engine does to the weights of its linear layers; docs/formats.md defines each."""


class EngineManifest(Value):
    """candidate.yaml of an inference engine that serves completions over HTTP.

    `start` is the command of engine `command`, run in the candidate's folder; `{port}`, `{model}`
    and `{candidate}` are filled in, and the engine must answer `health` with 200 once it serves.
    `url` names what runs already: engine `endpoint`, measured but never promoted.
    `kernels` names kernels that it is made of, by contract: submitted candidates whose files lie in
    this folder too. `quantisation` is what the engine does to the weights, which chooses the
    matched reference; the contract must allow it.
    """

    contract: Name
    engine: Literal["command", "transformers", "llama_cpp", "vllm", "sglang", "endpoint"]
    start: Annotated[tuple[Argument, ...], Field(max_length=64)] = ()
    health: Annotated[str, Field(pattern=r"^/[^\s\x00]{0,200}$")] = "/health"
    url: Annotated[str, Field(pattern=r"^https?://[^\s\x00]{1,500}$")] | None = None
    options: EngineOptions = {}
    quantisation: Quantisation = "none"
    start_s: Annotated[float, Field(gt=0, le=7200)] = 120.0
    kernels: Annotated[dict[Name, Digest], Field(max_length=64)] = {}
    parent: Digest | None = None
    note: Annotated[str, Field(max_length=2000)] = ""

    @model_validator(mode="after")
    def _fits_the_engine(self) -> "EngineManifest":
        if (self.engine == "command") != bool(self.start):
            raise ValueError("`start` is given for engine command, and for no other")
        if (self.engine == "endpoint") != (self.url is not None):
            raise ValueError("`url` is given for engine endpoint, and for no other")
        return self


class Candidate(Value):
    """A stored snapshot. `digest` covers the manifest and every file's path and bytes."""

    digest: Digest
    manifest: Manifest | EngineManifest
    files: dict[str, Digest]

    @property
    def made_of(self) -> str:
        """A kernel's language, or the name of an engine's adapter."""
        if isinstance(self.manifest, Manifest):
            return self.manifest.language
        return f"engine {self.manifest.engine}"

    @property
    def kernel(self) -> Manifest:
        """The manifest of a kernel.

        Raises:
            UsageError: the candidate is an engine.
        """
        if isinstance(self.manifest, Manifest):
            return self.manifest
        raise UsageError(
            f"candidate {self.digest[:12]} is an engine, which is not compiled or profiled here",
            hint="call check_numerics, deploy or run_aiperf with it",
        )

    @property
    def engine(self) -> EngineManifest:
        """The manifest of an engine.

        Raises:
            UsageError: the candidate is a kernel.
        """
        if isinstance(self.manifest, EngineManifest):
            return self.manifest
        raise UsageError(
            f"candidate {self.digest[:12]} is a kernel, which serves no requests",
            hint="call check_numerics or profile with it, or submit an engine",
        )
