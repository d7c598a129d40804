"""What a service contract says of drawn tokens, and of how good an engine's output must be."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from inferproof.core.values import Value

Nats = Annotated[float, Field(gt=0, le=10)]


class SamplerSetting(Value):
    """Sampling parameters that an engine must obey; those that are None are off."""

    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    top_k: Annotated[int, Field(ge=1, le=1 << 20)] | None = None
    top_p: Annotated[float, Field(gt=0, lt=1)] | None = None
    min_p: Annotated[float, Field(gt=0, lt=1)] | None = None

    @property
    def words(self) -> str:
        """The setting as a reader writes it: `temperature 1, top_k 4`."""
        named = {"top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}
        given = (f"{name} {value:g}" for name, value in named.items() if value is not None)
        return ", ".join((f"temperature {self.temperature:g}", *given))

    @property
    def cuts(self) -> tuple[str, ...]:
        """The parameters that leave tokens out."""
        named = {"top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}
        return tuple(name for name, value in named.items() if value is not None)


class Quality(Value):
    """How much worse than the baseline's, or the original's, a candidate's output may be.

    `items` windows of `tokens` are read by both arms and continued by `decode_tokens`. Margins are
    of means over items, against the full-precision original: KL, negative log-likelihood of the
    given text, share of positions where the best token is another. `differs_over_floor` is from
    which multiple of the floor on two arms count as different, which a person must approve.
    """

    rule: Literal["no_worse_than_baseline", "no_worse_than_original"] = "no_worse_than_baseline"
    items: Annotated[int, Field(ge=4, le=1000)] = 12
    tokens: Annotated[int, Field(ge=8, le=8192)] = 96
    decode_tokens: Annotated[int, Field(ge=4, le=1024)] = 12
    kl_margin_nats: Nats = 0.005
    nll_margin_nats: Nats = 0.01
    top1_margin: Annotated[float, Field(gt=0, lt=1)] = 0.02
    differs_over_floor: Annotated[float, Field(ge=1, le=1000)] = 4.0


class Sampler(Value):
    """At which settings tokens are drawn, and at least how many at each; none, nothing is drawn."""

    settings: Annotated[tuple[SamplerSetting, ...], Field(max_length=16)] = ()
    tokens: Annotated[int, Field(ge=40, le=10_000)] = 160

    @model_validator(mode="after")
    def _all_differ(self) -> "Sampler":
        if len(set(self.settings)) < len(self.settings):
            raise ValueError("two settings of the sampler are the same")
        return self
