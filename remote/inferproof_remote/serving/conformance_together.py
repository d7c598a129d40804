"""Checks of many requests at once: all are answered, and whoever hangs up makes room."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

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
from inferproof_remote.serving.wire import Held

_MORE = 8
_LONG, _LENGTHS, _UNDER_WAY = 512, 8, 12
_PROMPT = 12


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

    Long streams fill every slot there is, and the longest of those under way is hung up. What tells
    is the order: the first text of one that waited must come before the end of any other.
    """
    watch = threading.Condition()
    held = [_long(subject, watch, number) for number in range(subject.connections + _MORE)]
    try:
        running, waiting = _settled(held, watch, subject)
        longest = max(running, key=lambda each: each.tokens)
        longest.hang_up()
        others = [each for each in running if each is not longest]
        _joined_by(waiting, others, watch, subject.wire.client.timeout_s)
    finally:
        for each in held:
            each.hang_up()
        for each in held:
            if each.thread is not None:
                each.thread.join()
    known = subject.first()
    same(subject.text(known, max_tokens=known.whole), known.texts[-1], "the answer afterwards")


def _long(subject: Subject, watch: threading.Condition, number: int) -> Held:
    """Return a long stream; of any few in a row, each has another length."""
    most = min(_LONG, subject.context // 2)
    tokens = most - number % _LENGTHS * most // (2 * _LENGTHS)
    _, prompt = subject.oracle.prose(_PROMPT)
    fields: dict[str, object] = {"max_tokens": tokens, "stream": True}
    if subject.ignores_eos:
        fields["ignore_eos"] = True
    body = subject.api.asked(prompt, subject.model, **fields)
    return subject.wire.stream(subject.api.path, body, watch, tokens=tokens)


def _settled(
    held: Sequence[Held], watch: threading.Condition, subject: Subject
) -> tuple[list[Held], list[Held]]:
    """Return which streams are well under way and which wait, once that does not change."""

    def is_settled() -> bool:
        begun = [each for each in held if each.pieces]
        if any(each.is_over for each in begun) or all(each.is_over for each in held):
            return True
        return bool(begun) and all(each.pieces >= _UNDER_WAY for each in begun)

    with watch:
        in_time = watch.wait_for(is_settled, subject.wire.client.timeout_s)
        running = [each for each in held if each.pieces]
        waiting = [each for each in held if not each.pieces and not each.is_over]
        early = not running or any(each.is_over for each in running)
    if early and not subject.ignores_eos:
        raise Unknown("the engine cannot be told to go on, so that nothing keeps a slot")
    if not in_time:
        raise Unknown(f"{len(held)} long streams at once are not under way in time")
    if early:
        raise Broken(f"of {len(held)} long streams at once, some end before their time")
    if not waiting:
        raise Inapplicable(f"all of {len(held)} streams go on at once: none has to wait")
    if len(running) < 2:
        raise Inapplicable("one request at a time: nothing else is under way to compare with")
    return running, waiting


def _joined_by(
    waiting: Sequence[Held], others: Sequence[Held], watch: threading.Condition, limit_s: float
) -> None:
    with watch:
        in_time = watch.wait_for(
            lambda: any(each.pieces for each in waiting) or any(each.is_over for each in others),
            limit_s,
        )
        if any(each.pieces for each in waiting):
            return
    if not in_time:
        raise Unknown("nothing begins or ends in time after a request was hung up")
    raise Broken("a request that was hung up keeps its slot until others have ended")
