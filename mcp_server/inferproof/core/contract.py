"""A kernel contract as a value: what must hold for one kernel, whoever wrote it.

Shapes are expressions over the contract's dims (`2*inter`); `inferproof_remote.expressions`
evaluates them. Tensors are row-major and contiguous unless `layout` says otherwise.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.values import Name, Value

Expression = Annotated[str, Field(min_length=1, max_length=200)]
Symbol = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")]
FunctionRef = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]*\.py:[a-zA-Z_][a-zA-Z0-9_]*$")]
SizeRange = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]


class DType(StrEnum):
    """Element types a tensor may have; the C ABI type is in docs/formats.md.

    `ue4m3` and `ue8m0` are scales, which are positive. `f4e2m1x2` is a byte of two 4-bit numbers,
    the first in its low half; shapes count bytes.
    """

    BF16 = "bf16"
    F16 = "f16"
    F32 = "f32"
    F64 = "f64"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    F8E4M3 = "f8e4m3"
    F8E5M2 = "f8e5m2"
    UE4M3 = "ue4m3"
    UE8M0 = "ue8m0"
    F4E2M1X2 = "f4e2m1x2"


class Dim(Value):
    """One named extent: a range to draw from, a fixed value, or a field of the model's config."""

    min: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    max: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    value: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    from_model: Symbol | None = None


class Tensor(Value):
    """One argument. `range` bounds integer inputs [low, high), and f32 inputs that have no family.

    Such an f32 input is uniform, as the random numbers of a sampler are.
    """

    dtype: DType
    shape: tuple[Expression | Annotated[int, Field(ge=1)], ...]
    layout: Literal["contiguous"] = "contiguous"
    range: tuple[Expression | int, Expression | int] | None = None


class Param(Value):
    """A scalar argument passed by value."""

    dtype: Literal["f32", "i64"]
    value: float


class Family(StrEnum):
    """How floating-point inputs are drawn."""

    NORMAL = "normal"
    LOG_UNIFORM = "log_uniform"
    OUTLIER_CHANNELS = "outlier_channels"
    NEAR_CANCELLING = "near_cancelling"
    CONSTANT = "constant"
    DENORMAL = "denormal"
    SMALL_INTEGERS = "small_integers"


class GradedDraw(Value):
    """Shapes drawn after the candidate is committed: `draw` of them, plus neighbours of each."""

    draw: Annotated[int, Field(ge=1, le=64)]
    from_: Annotated[dict[Symbol, Literal["log_uniform", "uniform"]], Field(alias="from")]
    neighbours: tuple[int, ...] = ()


class TimedDraw(Value):
    """Shapes that are timed: each is drawn uniformly within its range after the commit."""

    ranges: Annotated[tuple[dict[Symbol, SizeRange], ...], Field(min_length=1, max_length=8)]
    pairs: Annotated[int, Field(ge=5, le=200)] = 20


class Workloads(Value):
    """Practice shapes are open; graded and timed shapes are drawn."""

    practice: Annotated[
        tuple[dict[Symbol, Annotated[int, Field(ge=1)]], ...], Field(min_length=1, max_length=32)
    ]
    graded: GradedDraw
    timed: TimedDraw


class Tolerance(Value):
    """Error bars as multiples of the yardstick's error, per tile and overall.

    `floor` names the dtype whose unit roundoff bounds the yardstick's error from below. `cut_share`
    bounds, among the elements of a 16-bit output that rounding to nearest carries away from zero,
    the share that may be nearer to zero than they are: rounding leaves few, cutting all.
    `mean_over_yardstick` bounds all tiles together, in units of what rounding to `floor` really
    costs: 1 is rounded once, about 1.4 twice, 2 has lost a bit. `exact` takes the right bits alone,
    as of kernels that move data.
    """

    rms_over_yardstick: Annotated[float, Field(gt=0, le=100)] = 2.0
    p999_over_yardstick: Annotated[float, Field(gt=0, le=100)] = 4.0
    floor: DType
    cut_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    mean_over_yardstick: Annotated[float, Field(gt=0, le=100)] | None = None
    exact: bool = False


class Roofline(Value):
    """Least bytes moved and operations done, as expressions over the dims."""

    bytes: Expression
    flops: Expression


class FailureMode(Value):
    """A known way to get this component wrong, told to whoever implements it."""

    id: Name
    text: Annotated[str, Field(min_length=1, max_length=1000)]


class Reuse(Value):
    """Libraries a candidate may call, and what is recorded about them."""

    allow: tuple[str, ...] = ()
    record: tuple[Literal["version", "licence"], ...] = ("version", "licence")


class KernelContract(Value):
    """What must hold for one kernel. File form: docs/formats.md.

    `engages` is the dtype of the operands that device code must give to a matrix instruction.
    `sanitizer` says whether device code is accepted on a machine without compute-sanitizer.
    """

    kind: Literal["kernel"]
    name: Name
    doc: Annotated[str, Field(min_length=1, max_length=1000)]
    dims: Annotated[dict[Symbol, Dim], Field(min_length=1, max_length=8)]
    inputs: Annotated[dict[Symbol, Tensor], Field(min_length=1, max_length=16)]
    params: dict[Symbol, Param] = {}
    outputs: Annotated[dict[Symbol, Tensor], Field(max_length=8)]
    mutates: tuple[Symbol, ...] = ()
    prepare: tuple[Symbol, ...] = ()
    reuse: Reuse = Reuse()
    engages: DType | None = None
    sanitizer: Literal["required", "where_present"] = "where_present"
    reference: FunctionRef
    yardstick: FunctionRef
    align: FunctionRef | None = None
    baselines: Annotated[tuple[Literal["torch", "torch.compile"], ...], Field(min_length=1)]
    workloads: Workloads
    inputs_like: Annotated[tuple[Family, ...], Field(min_length=1)]
    tolerance: Tolerance
    mutants: Annotated[tuple[Name, ...], Field(min_length=1, max_length=32)]
    roofline: Roofline
    failure_modes: Annotated[tuple[FailureMode, ...], Field(max_length=32)] = ()
