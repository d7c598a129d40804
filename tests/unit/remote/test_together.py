"""A slot is seen to be freed, or kept, in whatever order a busy machine reads the streams."""

import http.client
import threading
from collections.abc import Callable, Iterable

import pytest

from inferproof_remote.serving.conformance_together import Sight, seen_of
from inferproof_remote.serving.subject import Unknown
from inferproof_remote.serving.wire import Held

Move = Callable[[list[Held], list[Held]], None]


class Script(threading.Condition):
    """Plays one move whenever the check waits: what its readers saw meanwhile."""

    def __init__(self, waiting: list[Held], others: list[Held], moves: Iterable[Move]) -> None:
        super().__init__()
        self._streams, self._moves = (waiting, others), iter(moves)

    def wait(self, timeout: float | None = None) -> bool:
        """Play the next move; without one, time is up."""
        move = next(self._moves, None)
        if move is not None:
            move(*self._streams)
        return move is not None


def played(*moves: Move) -> Sight:
    connection = http.client.HTTPConnection("127.0.0.1")
    waiting, others = (
        [Held(connection, threading.Condition(), 512) for _ in range(count)] for count in (4, 3)
    )
    return seen_of(waiting, others, Script(waiting, others, moves), 0.01)


def begins(number: int) -> Move:
    def move(waiting: list[Held], _: list[Held]) -> None:
        waiting[number].pieces += 1

    return move


def ends(number: int) -> Move:
    def move(_: list[Held], others: list[Held]) -> None:
        others[number].is_over = True

    return move


def vanishes(number: int) -> Move:
    def move(waiting: list[Held], _: list[Held]) -> None:
        waiting[number].is_over = True

    return move


def go_on(_: list[Held], others: list[Held]) -> None:
    for each in others:
        each.pieces += 12


def both(*moves: Move) -> Move:
    def move(waiting: list[Held], others: list[Held]) -> None:
        for each in moves:
            each(waiting, others)

    return move


@pytest.mark.parametrize(
    "moves",
    [
        (both(begins(0), go_on), go_on),
        (both(ends(0), go_on), both(begins(0), begins(1), go_on), go_on),
        (both(ends(0), begins(0), begins(1), go_on), go_on),
    ],
    ids=["before any end", "read late", "all read at once"],
)
def test_a_slot_is_freed_if_more_begin_than_others_end(moves: tuple[Move, ...]) -> None:
    assert played(*moves) == "freed"


@pytest.mark.parametrize(
    "moves",
    [
        (both(ends(0), go_on), go_on),
        (both(ends(0), begins(0), go_on), go_on),
        (both(begins(0), go_on), both(ends(0), go_on), go_on),
    ],
    ids=["nobody begins", "one begins at an end", "the end is read late"],
)
def test_a_slot_is_kept_if_no_more_begin_than_others_end(moves: tuple[Move, ...]) -> None:
    assert played(*moves) == "kept"


def test_a_stream_that_began_late_makes_room_by_its_own_end() -> None:
    next_ = both(vanishes(0), begins(1), go_on)
    assert played(both(ends(0), begins(0), go_on), next_, go_on) == "kept"


@pytest.mark.parametrize(
    "moves",
    [
        (both(ends(0), ends(1), ends(2)),),
        (both(*(begins(each) for each in range(4)), ends(0), ends(1), ends(2)),),
        (both(ends(0), begins(0), begins(1), begins(2), begins(3), ends(1), ends(2)), go_on),
    ],
    ids=["all ended before the next look", "and all began", "nobody waits any more"],
)
def test_what_was_not_looked_at_in_time_is_neither(moves: tuple[Move, ...]) -> None:
    assert played(*moves) == "missed"


def test_streams_that_stand_still_tell_nothing() -> None:
    with pytest.raises(Unknown):
        played()
