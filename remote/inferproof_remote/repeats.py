"""Calls whose inputs come again: did they give the same bits, and are they still right?"""

from collections.abc import Sequence

import torch
from torch import Tensor

from inferproof_remote.call_facts import CallRecord
from inferproof_remote.draws import Plan, PlannedCall
from inferproof_remote.incidents import Incident
from inferproof_remote.inputs import Tensors


class Repeats:
    """Remembers which calls were right, and the outputs of those that are asked again."""

    def __init__(self, plan: Plan) -> None:
        self._bases = {call.base for call in plan.calls if call.base is not None}
        self._fine: dict[int, bool] = {}
        self._firsts: dict[int, Tensors] = {}
        self._unrepeated: list[Incident] = []

    @property
    def all_fine(self) -> bool:
        """Whether every call so far was right."""
        return all(self._fine.values())

    def has_later(self, call: PlannedCall) -> bool:
        """Return whether a later call goes back to this one."""
        return call.index in self._bases

    def note(self, call: PlannedCall, outputs: Tensors, *, fine: bool) -> bool | None:
        """Return whether a repeat gave the same bits; take note if only now it is wrong."""
        self._fine[call.index] = fine
        if self.has_later(call):
            self._firsts[call.index] = outputs
        if call.phase != "repeat" or call.base is None or not outputs:
            return None
        if self._fine[call.base] and not fine:
            detail = f"the inputs of call {call.base} again, but outputs that are wrong now"
            self._unrepeated.append(Incident("not_repeatable", call.index, detail))
        first = self._firsts[call.base]
        return all(torch.equal(_raw(first[name]), _raw(value)) for name, value in outputs.items())

    def incidents(self, records: Sequence[CallRecord]) -> list[Incident]:
        """Return the repeats that went wrong; of a proved replay it is not said again."""
        errors = [error for each in records for error in (each.outputs or {}).values()]
        is_replay = any(error.stale_of is not None for error in errors)
        return [] if is_replay else self._unrepeated


def _raw(values: Tensor) -> Tensor:
    return values.contiguous().view(-1).view(torch.uint8)
