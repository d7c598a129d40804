"""Traffic as data: how requests arrive, how long they are, and what they say.

Lengths are in tokens of the model's own tokenizer.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from inferproof.core.candidate import RelativePath
from inferproof.core.values import Name, Value

Tokens = Annotated[int, Field(ge=1, le=1 << 20)]
TokenRange = tuple[Tokens, Tokens]


class LogNormal(Value):
    """Lengths whose logarithms are normal, drawn again while outside of [least, greatest]."""

    median: Tokens
    sigma: Annotated[float, Field(gt=0, le=4)]
    least: Tokens = 1
    greatest: Tokens

    @model_validator(mode="after")
    def _median_within(self) -> "LogNormal":
        if not self.least <= self.median <= self.greatest:
            raise ValueError("the median lies between least and greatest")
        return self


class Listed(Value):
    """Lengths of which each is drawn as often as the others."""

    listed: Annotated[tuple[Tokens, ...], Field(min_length=1, max_length=256)]


Lengths = TokenRange | LogNormal | Listed
ROOM_TOKENS = 2
"""Least tokens of a prompt's own, after what it shares with others."""


def _least(lengths: Lengths) -> int:
    if isinstance(lengths, LogNormal):
        return lengths.least
    return min(lengths.listed if isinstance(lengths, Listed) else lengths)


class Burst(Value):
    """So many requests at once, again and again."""

    requests: Annotated[int, Field(ge=2, le=4096)]
    every_s: Annotated[float, Field(gt=0, le=600)]


class Trace(Value):
    """A file of the contract's folder in mooncake's format: one JSON object a line.

    `timestamp` (ms), `input_length`, `output_length` and `hash_ids`, each of which stands for
    `block_tokens` tokens that requests with the same id share.
    """

    file: RelativePath
    block_tokens: Annotated[int, Field(ge=1, le=65536)] = 512


class Traffic(Value):
    """One traffic shape: how requests arrive, how long they are, and what they say.

    Arrivals are one of: a closed loop at `concurrency`, Poisson at `rate_per_s`, `burst`, a timed
    `trace`, or `ramp`: a closed loop at each of these concurrencies, judged at each. `isl` and
    `osl` are drawn for each request: [least, greatest], a log-normal, or a list.

    `content` is made anew for each run, once the engine serves: `mixed` joins short pieces of the
    corpus with some of random tokens, `prose` pieces alone, `structured` is records that repeat
    their form, `tokens` is random. `cache` says what a prefix cache may gain: `bust` nothing,
    `shared_prefix` the first `shared_tokens`, `natural` what a conversation of `turns` repeats.
    """

    name: Name
    requests: Annotated[int, Field(ge=2, le=100_000)]
    concurrency: Annotated[int, Field(ge=1, le=4096)] | None = None
    rate_per_s: Annotated[float, Field(gt=0, le=10_000)] | None = None
    burst: Burst | None = None
    trace: Trace | None = None
    ramp: Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], Field(max_length=16)] = ()
    isl: Lengths | None = None
    osl: Lengths | None = None
    content: Literal["mixed", "prose", "structured", "tokens"] = "mixed"
    cache: Literal["bust", "shared_prefix", "natural"] = "bust"
    shared_tokens: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    turns: Annotated[int, Field(ge=1, le=64)] = 1
    warmup_requests: Annotated[int, Field(ge=1, le=1000)] = 2

    @property
    def steps(self) -> "tuple[Traffic, ...]":
        """The shapes that are run: of a ramp one for each concurrency, else this one."""
        if not self.ramp:
            return (self,)
        return tuple(
            self.model_copy(
                update={"name": f"{self.name}.c{each}", "concurrency": each, "ramp": ()}
            )
            for each in self.ramp
        )

    @model_validator(mode="after")
    def _one_arrival(self) -> "Traffic":
        arrivals = (self.concurrency, self.rate_per_s, self.burst, self.trace, self.ramp or None)
        if sum(each is not None for each in arrivals) != 1:
            raise ValueError("give one of concurrency, rate_per_s, burst, trace and ramp")
        if len(self.ramp) == 1 or list(self.ramp) != sorted(set(self.ramp)):
            raise ValueError("a ramp has two or more concurrencies that rise")
        return self

    @model_validator(mode="after")
    def _lengths_fit(self) -> "Traffic":
        if (self.isl is None) != (self.trace is not None) or (self.osl is None) != (
            self.trace is not None
        ):
            raise ValueError("a trace has its lengths in its file; all others have isl and osl")
        for each in (self.isl, self.osl):
            if isinstance(each, tuple) and each[0] > each[1]:
                raise ValueError("a range is [least, greatest]")
        return self

    @model_validator(mode="after")
    def _cache_fits(self) -> "Traffic":
        if (self.cache == "shared_prefix") != (self.shared_tokens > 0):
            raise ValueError("`shared_tokens` is of cache: shared_prefix, which needs it")
        if self.isl is not None and self.shared_tokens + ROOM_TOKENS > _least(self.isl):
            raise ValueError(f"isl must be at least shared_tokens and {ROOM_TOKENS} more")
        if (self.turns > 1 or self.trace is not None) and self.cache != "natural":
            raise ValueError("turns and a trace repeat their beginnings: cache: natural")
        if self.turns > 1 and (self.requests % self.turns or self.concurrency is None):
            raise ValueError("turns need concurrency, and requests that are a multiple of them")
        return self
