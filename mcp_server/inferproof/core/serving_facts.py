"""What was measured of an engine: how it started, how far it is from the reference, how it served.

Columns of equal length are rows of one table. `None` means not measured, which never passes.
KL is in nats, of the engine's distribution against the float32 reference, over the engine's
listed tokens and one bucket for all others; the floor is read by the same estimator.
"""

from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.candidate import EngineOptions, Quantisation
from inferproof.core.quality import SamplerSetting
from inferproof.core.service import CheckName
from inferproof.core.values import Digest, Incident, NonNegative, Value

Arm = Literal["candidate", "baseline"]
Stage = Literal["fidelity", "conformance", "tasks", "lm_eval", "load"]
ScoredPath = Literal["prompt", "prefix", "decode", "batch", "reuse", "beyond", "mixed", "split"]
Column = tuple[float, ...]
Counts = tuple[int, ...]


class DeploymentFacts(Value):
    """One start of one arm: `ready_s` until every replica answered; `features` as probed.

    `features` are what the engine's answers showed, never what it claims:
    `prompt_logprobs`, `logprobs`, `token_ids`, `stream`, `ignore_eos`. Of each replica,
    `cores_each` are the cores it was given and `busiest_cores` the most that one kept busy for a
    while; `cpu_s` and `peak_memory_mib` are of all replicas together.
    """

    arm: Arm
    restart: int
    engine: str
    supervised: bool
    replicas: int
    healthy: int
    ready_s: NonNegative | None
    features: dict[str, bool]
    incidents: tuple[Incident, ...] = ()
    log_tail: str = ""
    cores_each: int | None = None
    busiest_cores: NonNegative | None = None
    cpu_s: NonNegative | None = None
    peak_memory_mib: NonNegative | None = None


class TokenScores(Value):
    """Teacher-forced tokens of one path through the engine, one row a token.

    `prompt`: logprobs of the prompt's own tokens; `prefix`: the same, one request for each prefix;
    `decode`: generated greedily, alone; `batch`: with other prompts in flight; `reuse`: after a
    prompt that was the same, or began so; `beyond`: a little outside of what the contract asks
    (longer, more at once, free to end); `mixed`: a long prompt that came while others decoded, and
    those; `split`: decoded tokens asked again as a prompt, `kl` between the engine's two readings
    and `floor_kl` of two trusted ones. `shaken_kl` is how far off a row was found that was far
    enough off to be read again, by a trusted path that rounds more. `tie_gap_nats` is the
    reference's best log-probability less that of the engine's token, on rows that the engine chose,
    or a trusted path's where that is less. `loss_nats` is that gap to the reference alone, and
    `floor_loss_nats` what the trusted path's own choice would lose there. `agrees` is 1 where the
    engine's best token is the reference's. Empty columns were not available.

    Of the `asked` rows, `unreadable` were answered without what the engine was seen to give and
    `unanswered` were not; what else is missing could not be mapped to tokens.
    """

    path: ScoredPath
    asked: int
    unreadable: int
    unanswered: int
    sequence: Counts
    position: Counts
    kl: Column
    floor_kl: Column
    shaken_kl: Column = ()
    tie_gap_nats: Column
    loss_nats: Column = ()
    floor_loss_nats: Column = ()
    nll_engine: Column = ()
    nll_reference: Column = ()
    agrees: Counts = ()


class FidelityFacts(Value):
    """How far one start of one arm is from the reference model. Prompts followed from the bits."""

    arm: Arm
    restart: int
    lengths: Counts
    scores: tuple[TokenScores, ...]
    seconds: NonNegative


class SamplerFacts(Value):
    """Tokens drawn at one setting, each against what the reference would draw there.

    `outside` is 1 for a token that the setting leaves out, by more than a tie. Of the others,
    `surprise_nats` is the negative logarithm of the token's chance, `expected_nats` and
    `variance_nats2` its mean and variance. `rank_*` have one row for each range of ranks: how often
    a token was of it, how often it would be, and the variance of that. Of `asked` tokens, those of
    `failed` requests did not come, and `ends` were ends of text, of which `ends_expected` are those
    that the reference would draw at most.
    """

    setting: SamplerSetting
    asked: int
    failed: int
    outside: Counts
    surprise_nats: Column
    expected_nats: Column
    variance_nats2: Column
    rank_observed: Counts
    rank_expected: Column
    rank_variance: Column
    ends: Annotated[int, Field(ge=0)] = 0
    ends_expected: NonNegative = 0.0
    ends_variance: NonNegative = 0.0
    seconds: NonNegative


class ApartFacts(Value):
    """How far both arms' readings of the same positions are from each other, one row each."""

    sequence: Counts
    position: Counts
    kl: Column
    floor_kl: Column


class QualityFacts(Value):
    """Both arms on the same windows, against the full-precision original; and between them.

    `quantisation` is what each arm declares. `apart` is None where an arm gives no
    log-probabilities.
    """

    arms: tuple[FidelityFacts, ...]
    quantisation: dict[Arm, Quantisation]
    apart: ApartFacts | None


class MutantScores(Value):
    """The reference model with one known fault, scored like an engine."""

    name: str
    scores: tuple[TokenScores, ...]


class CheckFacts(Value):
    """What one check of an interface found; `said` is the engine's own word.

    `absent`: the engine does not have the feature, or refuses it, which its contract may allow;
    `not_applicable`: its model cannot have it.
    """

    name: CheckName
    api: Literal["completions", "chat"]
    result: Literal["held", "broken", "absent", "not_applicable", "unmeasured"]
    detail: str = ""
    said: str = ""


class ConformanceFacts(Value):
    """How one start of one arm speaks OpenAI's completions and chats."""

    arm: Arm
    restart: int
    checks: tuple[CheckFacts, ...]
    seconds: NonNegative


class TaskFacts(Value):
    """The answers of one start of one arm to the contract's tasks, a row a task.

    `absent`: the engine has no such way to be asked; `unscored`: it gives no log-probabilities to
    choose by; `failed`: it refused, or what came is no answer; `undecided`: the checker itself
    ran out of time. Of the answers only digests are kept.
    """

    arm: Arm
    restart: int
    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    results: tuple[
        Literal["right", "wrong", "absent", "unscored", "failed", "unanswered", "undecided"], ...
    ]
    digests: tuple[Digest, ...]
    seconds: NonNegative


class LmEvalFacts(Value):
    """What lm-eval reports of one arm: {task: {metric: value}}. It is told, never judged."""

    arm: Arm
    version: str
    results: dict[str, dict[str, float]] = {}
    seconds: NonNegative
    failure: str = ""


class AuditFacts(Value):
    """Responses of the scored run itself, read by the reference.

    `tie_gap_nats` has one gap for each greedy token, response after response, of `tokens` each;
    `floor_loss_nats` has what the trusted path's own choice would lose there.
    `drawn_best` says of each token that was then drawn at temperature 1 whether it is the
    reference's best, whose chance is `drawn_best_chance`; `drawn_noise_nats`, of the tokens that
    the engine told, how much likelier each is in a hotter distribution. `drawn_failed` requests
    for such tokens were refused, or answered with less than was asked.
    """

    responses: int
    tokens: Counts = ()
    tie_gap_nats: Column
    floor_loss_nats: Column = ()
    drawn_best: Counts = ()
    drawn_best_chance: Column = ()
    drawn_noise_nats: Column = ()
    drawn_failed: int = 0
    seconds: NonNegative


class LoadFacts(Value):
    """One AIPerf run. Times are ms from the client's clock; lengths are our own re-tokenisation.

    Columns have one row a completed request. `client_lag_p99_ms` is how late the client itself
    started requests. `told` is 1 where the engine told its tokens and they spell its text.
    `arrivals` counts the chunks, those that came together as one. `whole` is 1 for a response with
    a finish reason and an end of stream. `compressed_share` is the size of all responses
    zlib-compressed. `cold_` columns are of the warm-up, which counts for nothing else.
    """

    arm: Arm
    restart: int
    traffic: str
    seed: int
    command: tuple[str, ...]
    client_version: str
    exit_code: int | None
    is_complete: bool
    was_cancelled: bool
    asked: int
    completed: int
    errors: dict[str, int]
    seconds: NonNegative | None
    ttft_ms: Column
    tpot_ms: Column
    latency_ms: Column
    cold_ttft_ms: Column = ()
    cold_latency_ms: Column = ()
    isl: Counts
    osl_asked: Counts
    osl: Counts
    told: Counts = ()
    chunks: Counts
    arrivals: Counts = ()
    whole: Counts
    finish_reasons: dict[str, int]
    distinct_responses: int
    compressed_share: Annotated[float, Field(ge=0)] | None
    client_lag_p99_ms: NonNegative | None
    output_tokens_per_s: NonNegative | None
    requests_per_s: NonNegative | None
    audit: AuditFacts | None = None
    failure: str = ""


class BarFacts(Value):
    """The baseline's options in this job; `search` is the evidence that they come from, if any."""

    options: EngineOptions
    search: Digest | None


class EarlierTries(Value):
    """How often the speed of a contract was asked for before, under the same seal.

    `graded` are all tries, of any candidate; `final` the promotions among them, where this is one.
    """

    graded: Annotated[int, Field(ge=0)]
    final: Annotated[int, Field(ge=0)]


class ServeFacts(Value):
    """All that was measured of an engine in one job. `bits` were drawn after the commit.

    `kernels` are the candidates of kernel contracts that the engine says it is made of. `stages`
    are what the job was to do; a stage that is missing from the facts was not reached.
    `quantisation` is the candidate's, to which the reference was matched.
    """

    bits: Digest
    candidate_seen: Digest
    contract_seen: Digest
    model_name: str
    model_digest: Digest
    stages: tuple[Stage, ...]
    kernels: dict[str, Digest] = {}
    quantisation: Quantisation = "none"
    separation: Literal["separate-user", "container", "shared-account"]
    sandbox: str
    cpu_model: str
    cores: int
    versions: dict[str, str]
    incidents: tuple[Incident, ...]
    deployments: tuple[DeploymentFacts, ...]
    fidelity: tuple[FidelityFacts, ...]
    mutants: tuple[MutantScores, ...] | None
    sampler: tuple[SamplerFacts, ...] = ()
    quality: QualityFacts | None = None
    loads: tuple[LoadFacts, ...]
    conformance: tuple[ConformanceFacts, ...] = ()
    tasks: tuple[TaskFacts, ...] = ()
    lm_eval: tuple[LmEvalFacts, ...] = ()
    bar: BarFacts | None = None

    @property
    def apart(self) -> str:
        """How the candidate was kept apart; empty when nobody said."""
        return f"{self.separation} ({self.sandbox})" if self.sandbox else ""
