"""What a job held of the machine's GPUs, and what is charged for it."""

from typing import Annotated, Literal

from pydantic import Field

from inferproof.core.values import NonNegative, Value

Token = Annotated[int, Field(ge=1)]


class LeaseFacts(Value):
    """The account of one job's GPUs, signed by its supervisor.

    `tokens` grow with every lease of a GPU. `held_s` is known up to the last heartbeat; a
    supervisor that did not close its account (`is_over`) is charged up to the next one, `beat_s`
    later.
    """

    gpus: tuple[str, ...]
    tokens: dict[str, Token]
    mode: Literal["exclusive", "shared"]
    waited_s: NonNegative
    held_s: NonNegative
    beat_s: NonNegative
    is_over: bool

    @property
    def accelerator_s(self) -> float:
        """The seconds that are charged, of all GPUs together."""
        missed_s = 0.0 if self.is_over or not self.gpus else self.beat_s
        return len(self.gpus) * (self.held_s + missed_s)
