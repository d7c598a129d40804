"""Calls that go back to an earlier one: the same bits are noticed, and so are other ones."""

import torch

from inferproof_remote.call_facts import CallRecord
from inferproof_remote.draws import Phase, Plan, PlannedCall
from inferproof_remote.numerics import OutputError
from inferproof_remote.repeats import Repeats

ONE, OTHER = {"y": torch.tensor([1.0, -0.0])}, {"y": torch.tensor([1.0, 0.0])}


def call(index: int, phase: Phase, base: int | None = None) -> PlannedCall:
    return PlannedCall(index=index, phase=phase, dims={}, family="normal", inputs="call", base=base)


CALLS = (call(0, "numerics"), call(1, "repeat", 0), call(2, "near_duplicate", 0))


def started() -> Repeats:
    repeats = Repeats(Plan(calls=CALLS, settled=3, timed=()))
    assert repeats.note(CALLS[0], ONE, fine=True) is None
    return repeats


def record(stale_of: int | None) -> CallRecord:
    error = OutputError(
        rms_ratio=9.0,
        p999_ratio=9.0,
        nan_mismatches=0,
        unwritten=0,
        bad_share=1.0,
        worst_tile="",
        stale_of=stale_of,
    )
    return CallRecord(
        index=1, phase="repeat", dims={}, family="normal", seconds=1.0, outputs={"y": error}
    )


def test_only_calls_that_are_asked_again_are_kept() -> None:
    repeats = started()
    assert [repeats.has_later(each) for each in CALLS] == [True, False, False]


def test_bits_are_compared_and_not_values() -> None:
    assert started().note(CALLS[1], ONE, fine=True) is True
    assert started().note(CALLS[1], OTHER, fine=True) is False
    assert started().note(CALLS[2], OTHER, fine=True) is None


def test_a_repeat_that_is_wrong_now_is_told_unless_a_replay_is_proved() -> None:
    repeats = started()
    repeats.note(CALLS[1], OTHER, fine=False)
    assert not repeats.all_fine
    assert [each.code for each in repeats.incidents([record(None)])] == ["not_repeatable"]
    assert repeats.incidents([record(0)]) == []


def test_a_call_that_was_never_right_is_no_race() -> None:
    repeats = Repeats(Plan(calls=CALLS, settled=3, timed=()))
    repeats.note(CALLS[0], ONE, fine=False)
    repeats.note(CALLS[1], OTHER, fine=False)
    assert repeats.incidents([record(None)]) == []
