"""A service contract as a value: what must hold for one engine behind its endpoint.

Lengths are in tokens of the model's own tokenizer. Thresholds that say `_over_floor` are multiples
of the error of the trusted path (the reference at its I/O precision), measured in the same run.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from inferproof.core.candidate import EngineOptions, Quantisation, RelativePath
from inferproof.core.contract import FailureMode
from inferproof.core.quality import Quality, Sampler
from inferproof.core.space import Space
from inferproof.core.traffic import Tokens, Traffic
from inferproof.core.values import Name, Value

Multiple = Annotated[float, Field(gt=0, le=1000)]
Share = Annotated[float, Field(ge=0, le=1)]

Metric = Literal["ttft_ms", "tpot_ms", "latency_ms", "output_tokens_per_s", "requests_per_s"]
"""TTFT to the first visible text; TPOT = (latency - TTFT) / (output tokens - 1)."""


class Fidelity(Value):
    """How far an engine may be from the reference model, and on what that is measured.

    Windows of `corpus` are drawn after the commit, at `lengths` around block boundaries. Prompt
    tokens, generated tokens, batched and repeated prompts are scored, at least `tokens` in all.
    A candidate may quantise its weights in the allowed ways, if its manifest says so. On each path
    a mean error of `notices_at_most` floors must be one that would be noticed.
    """

    corpus: RelativePath
    tokens: Annotated[int, Field(ge=200, le=100_000)] = 1000
    lengths: Annotated[tuple[Tokens, ...], Field(min_length=2, max_length=64)]
    decode_tokens: Annotated[int, Field(ge=8, le=1024)] = 40
    batch: Annotated[int, Field(ge=2, le=64)] = 4
    top_logprobs: Annotated[int, Field(ge=1, le=1000)] = 20
    mean_over_floor: Multiple = 2.0
    median_over_floor: Multiple = 2.0
    p99_over_floor: Multiple = 3.0
    max_over_floor: Multiple = 10.0
    bin_over_floor: Multiple = 5.0
    bin_tokens: Annotated[int, Field(ge=4, le=1024)] = 16
    tie_nats: Annotated[float, Field(gt=0, le=10)] = 0.3
    notices_at_most: Multiple = 50.0
    allowed_quantisation: Annotated[tuple[Quantisation, ...], Field(max_length=16)] = ()
    mutants: Annotated[tuple[Name, ...], Field(min_length=1, max_length=32)]


class Believability(Value):
    """What a load run must show before its numbers count.

    How well all responses compress, and how late the client was, are held against the baseline on
    the same prompts and against the median latency.
    """

    error_share_at_most: Share = 0.0
    osl_off_by_at_most: Share = 0.05
    tokens_per_chunk_at_most: Multiple = 2.0
    distinct_share_at_least: Share = 0.5
    compressed_over_baseline_at_least: Share = 0.5
    client_lag_share_at_most: Share = 0.25


class Audit(Value):
    """How many responses of each scored run are read against the reference, and how strictly.

    Greedy tokens must lie within `tie_nats` of the reference's best; `off_share_at_most` of them
    may not.
    """

    responses: Annotated[int, Field(ge=1, le=1000)] = 12
    tie_nats: Annotated[float, Field(gt=0, le=10)] = 0.3
    off_share_at_most: Share = 0.01


TaskName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$")]
CheckName = Literal[
    "stream",
    "usage",
    "max_tokens",
    "stop",
    "temperature_0",
    "seed",
    "n",
    "logprobs",
    "echo",
    "unicode",
    "refuses_bad_json",
    "refuses_wrong_types",
    "refuses_out_of_range",
    "refuses_negative_max_tokens",
    "refuses_empty_prompt",
    "refuses_unknown_model",
    "refuses_long_prompt",
    "connections",
    "cancel",
]


class Conformance(Value):
    """Which features of OpenAI's completions an engine must have.

    What is not `required` may be absent, or refused with a clear error, but not be wrong. `chat`
    says whether /v1/chat/completions must be there too, for a model that has a template.
    `connections` are in flight at once.
    """

    required: Annotated[tuple[CheckName, ...], Field(max_length=32)] = (
        "stream",
        "usage",
        "max_tokens",
        "stop",
        "temperature_0",
        "seed",
        "unicode",
        "refuses_bad_json",
        "refuses_wrong_types",
        "refuses_negative_max_tokens",
        "refuses_long_prompt",
        "connections",
        "cancel",
    )
    chat: Literal["required", "optional"] = "optional"
    connections: Annotated[int, Field(ge=2, le=1024)] = 64


class LmEval(Value):
    """Tasks of lm-eval that practice checks run on both arms, where the target has that program.

    `folder` of the contract's holds task files of the user's own; `limit` is how many documents.
    """

    tasks: Annotated[tuple[TaskName, ...], Field(min_length=1, max_length=32)]
    folder: RelativePath | None = None
    limit: Annotated[int, Field(ge=1, le=100_000)] = 100
    wall_s: Annotated[float, Field(gt=0, le=86400)] = 1800.0


class Tasks(Value):
    """What both arms are asked, and by how much the candidate's share of right answers may be less.

    `file` is one JSON object a line. Of a `private` one, results tell counts and never an id.
    """

    file: RelativePath
    margin: Annotated[float, Field(gt=0, lt=1)]
    private: bool = False
    at_once: Annotated[int, Field(ge=1, le=256)] = 4
    lm_eval: LmEval | None = None


class Aim(Value):
    """One metric on one traffic shape; `ratio_at_least` overrides the campaign's."""

    traffic: Name
    metric: Metric
    ratio_at_least: Annotated[float, Field(gt=0, le=1000)] | None = None


class Guard(Value):
    """A metric at a percentile that may be worse than the baseline's by this factor at most.

    `peak_memory_mib` is of all replicas together and of no traffic; neither it nor `error_share`
    has percentiles.
    """

    traffic: Name | None = None
    metric: Metric | Literal["error_share", "peak_memory_mib"]
    percentile: Annotated[float, Field(gt=0, lt=100)] = 95.0
    worse_at_most: Annotated[float, Field(ge=1, le=100)] = 1.1

    @model_validator(mode="after")
    def _of_a_traffic(self) -> "Guard":
        if (self.traffic is None) != (self.metric == "peak_memory_mib"):
            raise ValueError("`traffic` is of every metric but peak_memory_mib")
        return self


class EngineSpec(Value):
    """An engine of the user's own: which adapter starts it, with what options and weights."""

    engine: Literal["transformers", "llama_cpp", "vllm", "sglang", "command", "endpoint"]
    options: EngineOptions = {}
    quantisation: Quantisation = "none"


class Search(Value):
    """Plain search over options of the baseline; what it finds is the bar.

    `space` is a shipped one by name, or one's own. A configuration's score is the geometric mean
    of `metrics` over `traffic`, as ratios over the contract's own options in the same job. The best
    `finalists` are measured against those again, `repeats` times each in a drawn order; at once,
    where no more than these are to be tried.
    """

    space: Name | Space
    traffic: Annotated[tuple[Traffic, ...], Field(min_length=1, max_length=4)]
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1, max_length=5)]
    trials: Annotated[int, Field(ge=1, le=10_000)] = 24
    wall_s: Annotated[float, Field(gt=0, le=604_800)] = 3600.0
    trials_per_round: Annotated[int, Field(ge=1, le=64)] = 4
    finalists: Annotated[int, Field(ge=1, le=8)] = 2
    repeats: Annotated[int, Field(ge=2, le=32)] = 3


class ServiceContract(Value):
    """What must hold for one engine. File form: docs/formats.md."""

    kind: Literal["service"]
    name: Name
    doc: Annotated[str, Field(min_length=1, max_length=1000)]
    baseline: EngineSpec
    replicas: Annotated[int, Field(ge=1, le=256)] = 2
    restarts: Annotated[int, Field(ge=2, le=32)] = 3
    fidelity: Fidelity
    sampler: Sampler = Sampler()
    quality: Quality = Quality()
    believability: Believability = Believability()
    audit: Audit = Audit()
    conformance: Conformance | None = None
    tasks: Tasks | None = None
    practice: Annotated[tuple[Traffic, ...], Field(min_length=1, max_length=16)]
    graded: Annotated[tuple[Traffic, ...], Field(min_length=1, max_length=16)]
    final: Annotated[tuple[Traffic, ...], Field(max_length=16)] = ()
    objectives: Annotated[tuple[Aim, ...], Field(min_length=1, max_length=64)]
    guards: Annotated[tuple[Guard, ...], Field(max_length=64)] = ()
    search: Search | None = None
    failure_modes: Annotated[tuple[FailureMode, ...], Field(max_length=32)] = ()

    @model_validator(mode="after")
    def _known_traffic(self) -> "ServiceContract":
        tiers = (("practice", self.practice), ("graded", self.graded), ("final", self.final))
        for tier, shapes in tiers:
            names = [shape.name for shape in shapes]
            if len(set(names)) < len(names):
                raise ValueError(f"{tier}: two traffic shapes have the same name")
        known = {shape.name for shape in self.graded}
        for rule in (*self.objectives, *self.guards):
            if rule.traffic is not None and rule.traffic not in known:
                raise ValueError(f"no graded traffic {rule.traffic!r}; there is: {sorted(known)}")
        ramps = {(shape.name, shape.ramp) for shape in self.graded}
        if self.final and {(shape.name, shape.ramp) for shape in self.final} != ramps:
            raise ValueError(f"`final` has a shape for each graded one: {sorted(known)}")
        return self
