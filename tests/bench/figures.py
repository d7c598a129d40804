"""The figures of one bench script: each printed with its limit, exit 1 if one missed it."""

import sys
from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """What was measured so far, and what of it missed its limit."""

    _missed: list[str] = field(default_factory=list[str])

    def at_most(self, name: str, value: float, limit: float, unit: str, more: str = "") -> None:
        """Print a figure that must not exceed `limit`."""
        said = f"{name}: {value:.4g} {unit} (limit {limit:g} {unit})"
        self.holds(said, value <= limit, more)

    def holds(self, what: str, is_so: bool, more: str = "") -> None:
        """Print a statement that must hold."""
        print("PASS  " if is_so else "MISSED", what + (f"; {more}" if more else ""), flush=True)
        if not is_so:
            self._missed.append(what)

    def finish(self) -> None:
        """End the script with 1 if anything missed its limit."""
        if self._missed:
            sys.exit(f"missed: {len(self._missed)}")
