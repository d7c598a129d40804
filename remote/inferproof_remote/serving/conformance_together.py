"""Checks of many requests at once: all are answered, and whoever hangs up makes room."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias

from inferproof_remote.serving.client import NoAnswer
from inferproof_remote.serving.subject import (
    Absent,
    Broken,
    Inapplicable,
    Subject,
    Unknown,
    joined,
    same,
)
from inferproof_remote.serving.wire import Held, Table

_MORE = 8
_LONG, _LENGTHS, _UNDER_WAY, _SETTLED = 512, 8, 12, 5
_PROMPT = 12
_SURE, _LOOKS = 2, 4

Sight: TypeAlias = Literal["freed", "kept", "missed"]


def connections(subject: Subject) -> None:
    """Raise if one of many requests in flight together does not get its own answer."""
    subject.first()
    barrier = threading.Barrier(subject.connections)

    def one(number: int) -> str:
        known = subject.known[number % len(subject.known)]
        count = known.lengths[number // len(subject.known) % len(known.lengths)]
        barrier.wait()
        if number % 2:
            return _told(joined(subject.parts(known, max_tokens=count)), known.texts[count])
        return _told(subject.text(known, max_tokens=count), known.texts[count])

    with ThreadPoolExecutor(subject.connections) as pool:
        answers = list(pool.map(_or_none(one), range(subject.connections)))
    missing = sum(each is None for each in answers)
    if missing:
        raise Broken(f"{missing} of {subject.connections} requests at once are not answered")
    wrong = [each for each in answers if each]
    if wrong:
        what = f"{len(wrong)} of {subject.connections} requests at once get another answer"
        raise Broken(what, wrong[0])


def _told(text: str, expected: str) -> str:
    """Return an answer that is not the expected one; empty when it is."""
    return "" if text == expected else text or "nothing"


def _or_none(ask: Callable[[int], str]) -> Callable[[int], str | None]:
    def asked(number: int) -> str | None:
        try:
            return ask(number)
        except (NoAnswer, Absent, Broken):
            return None

    return asked


def cancel(subject: Subject) -> None:
    """Raise if a request still waits after another was hung up, until a third has ended.

    What a busy machine or a fast engine hides is looked at again. Only what was seen twice is held
    against an engine.
    """
    seen: list[Sight] = []
    while "freed" not in seen and seen.count("kept") < _SURE and len(seen) < _LOOKS:
        if seen:
            _emptied(subject)
        seen.append(_look(subject))
    if seen.count("kept") == _SURE:
        raise Broken("a request that was hung up keeps its slot until others have ended")
    if "freed" not in seen:
        why = "end before it is seen" if subject.ignores_eos else "cannot be told to go on, to see"
        raise Unknown(f"long streams {why} whether whoever hangs up makes room")
    known = subject.first()
    same(subject.text(known, max_tokens=known.whole), known.texts[-1], "the answer afterwards")


def _emptied(subject: Subject) -> None:
    """Wait for as long a text as any: what an engine still works on for nobody ends before it."""
    _, body = _long(subject, 0)
    try:
        subject.wire.post(subject.api.path, {**body, "stream": False})
    except NoAnswer as error:
        raise Unknown("after long streams were hung up, another does not end in time") from error


def _look(subject: Subject) -> Sight:
    """Return what became of a slot whose stream was hung up.

    Long streams fill every slot there is, and the longest of those under way is hung up.
    """
    watch = threading.Condition()
    asked = [_long(subject, number) for number in range(subject.connections + _MORE)]
    held = [
        subject.wire.stream(subject.api.path, body, watch, tokens=tokens) for tokens, body in asked
    ]
    try:
        running, waiting = _settled(held, watch, subject)
        if any(each.is_over for each in running):
            return "missed"
        longest = max(running, key=lambda each: each.tokens)
        longest.hang_up()
        others = [each for each in running if each is not longest]
        return seen_of(waiting, others, watch, subject.wire.client.timeout_s)
    finally:
        for each in held:
            each.hang_up()
        for each in held:
            if each.thread is not None:
                each.thread.join()


def _long(subject: Subject, number: int) -> tuple[int, Table]:
    """Return what asks for a long stream; of any few in a row, each has another length."""
    most = _most(subject)
    tokens = most - number % _LENGTHS * most // (2 * _LENGTHS)
    _, prompt = subject.oracle.prose(_PROMPT)
    fields: dict[str, object] = {"max_tokens": tokens, "stream": True}
    if subject.ignores_eos:
        fields["ignore_eos"] = True
    return tokens, subject.api.asked(prompt, subject.model, **fields)


def _most(subject: Subject) -> int:
    return min(_LONG, subject.context // 2)


def _settled(
    held: Sequence[Held], watch: threading.Condition, subject: Subject
) -> tuple[list[Held], list[Held]]:
    """Return which streams are under way and which wait, once that does not change or one ends.

    A request that an engine has not yet read is not one that waits for a slot, so that none may
    begin for long after the last that did.
    """
    long = max(_most(subject) // _SETTLED, _UNDER_WAY)

    def is_settled() -> bool:
        begun = [each for each in held if each.pieces]
        if any(each.is_over for each in begun) or all(each.is_over for each in held):
            return True
        return bool(begun) and all(each.pieces >= long for each in begun)

    with watch:
        in_time = watch.wait_for(is_settled, subject.wire.client.timeout_s)
        running = [each for each in held if each.pieces]
        waiting = [each for each in held if _waits(each)]
        early = any(each.is_over for each in running)
    if not in_time or not running:
        raise Unknown(f"{len(held)} long streams at once are not under way in time")
    if not waiting and not early:
        raise Inapplicable(f"all of {len(held)} streams go on at once: none has to wait")
    if len(running) < _SURE and not early:
        raise Inapplicable("one request at a time: nothing else is under way to compare with")
    return running, waiting


def seen_of(
    waiting: Sequence[Held], others: Sequence[Held], watch: threading.Condition, limit_s: float
) -> Sight:
    """Return whether a slot was freed: one more of `waiting` has begun than `others` have ended.

    Each stream is read by a thread of its own, late on a busy machine. What was counted is
    compared with what is counted once all that are under way have gone on for a while.
    """
    with watch:
        while any(_waits(each) for each in waiting) and not all(each.is_over for each in others):
            begun, ended = _counted(waiting, others)
            if not watch.wait_for(_further(others), limit_s):
                raise Unknown("streams do not go on after a request was hung up")
            begun_since, ended_since = _counted(waiting, others)
            if begun > ended_since:
                return "freed"
            if 0 < ended >= begun_since and any(_waits(each) for each in waiting):
                return "kept"
    return "missed"


def _further(streams: Sequence[Held]) -> Callable[[], bool]:
    """Return what tells whether each stream has gone on for a while since now, or is over."""
    goals = [each.pieces + _UNDER_WAY for each in streams]
    return lambda: all(
        each.is_over or each.pieces >= goal for each, goal in zip(streams, goals, strict=True)
    )


def _counted(waiting: Sequence[Held], others: Sequence[Held]) -> tuple[int, int]:
    """Return how many that waited have begun, and how many made room for them by their ends."""
    begun = [each for each in waiting if each.pieces]
    return len(begun), sum(each.is_over for each in (*begun, *others))


def _waits(stream: Held) -> bool:
    return not stream.pieces and not stream.is_over
