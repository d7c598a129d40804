"""Calls as plain JSON, in the form of the evidence."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeAlias

from inferproof_remote.numerics import OutputError

Json: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call of a candidate or mutant; `outputs` is None when they were not checked whole.

    `same_bits` says of a repeat whether it gave what its base gave, to the bit.
    """

    index: int
    phase: str
    dims: Mapping[str, int]
    family: str
    seconds: float | None
    outputs: Mapping[str, OutputError] | None
    same_bits: bool | None = None
    launch: int = 0

    def to_json(self) -> Json:
        """Return the call in the form of the evidence."""
        errors = self.outputs or {}
        return {
            "index": self.index,
            "phase": self.phase,
            "dims": dict(self.dims),
            "family": self.family,
            "seconds": self.seconds,
            "checked": self.outputs is not None,
            "outputs": {name: asdict(error) for name, error in errors.items()},
            "same_bits": self.same_bits,
            "launch": self.launch,
        }
