"""Patience: a slow engine is waited for, one that answers many never is refused in time."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import cast

import pytest

from inferproof_remote.serving.client import Answer, Client, Completion, NoAnswer, Request
from inferproof_remote.serving.conformance_together import connections
from inferproof_remote.serving.known import Known, Oracle
from inferproof_remote.serving.patience import MOST_S, paced, patience_s
from inferproof_remote.serving.subject import Broken, Subject
from inferproof_remote.serving.wire import Api, Reply, Table, Wire

KNOWN = Known(
    prompt="a", prompt_tokens=1, ids=(2, 3), logprobs=(0.0, 0.0), texts=("", "b", "bc"), bias={}
)


def test_many_at_once_are_waited_for_as_long_as_one_after_another_and_more_would_take() -> None:
    assert patience_s(0.02, at_once=64, least_s=60) == 60
    assert patience_s(1.0, at_once=64, least_s=60) > 2 * 64
    assert patience_s(1e6, at_once=64, least_s=60) == MOST_S


class Paced(Client):
    """An engine of which one answer takes as long as the clock says, or never comes."""

    def complete(self, request: Request) -> Answer:
        if self.model == "silent":
            return NoAnswer("nothing")
        return Completion(text="x", finish_reason="length")


def clock(seconds: float) -> Iterator[float]:
    return (number * seconds for number in count())


@pytest.mark.parametrize(("model", "alone_s", "waits_s"), [("a", 0.1, 20), ("a", 2.0, 192)])
def test_an_engine_is_waited_for_at_its_pace(model: str, alone_s: float, waits_s: float) -> None:
    client = Paced("http://127.0.0.1:1", model, timeout_s=20)
    assert paced(client, clock(alone_s).__next__).timeout_s == waits_s


def test_an_engine_that_says_nothing_is_waited_for_no_longer() -> None:
    client = Paced("http://127.0.0.1:1", "silent", timeout_s=20)
    assert paced(client, clock(99.0).__next__).timeout_s == 20


@dataclass(frozen=True)
class Queue(Wire):
    """An engine that answers one request after another; from `hangs_from` on, none of many."""

    alone_s: float = 0.0
    hangs_from: int = 1 << 20
    waited_s: list[float] = field(default_factory=list[float])
    places: "Iterator[int]" = field(default_factory=lambda: count(1))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def post(self, path: str, body: bytes | Table) -> Reply:
        with self.lock:
            place = next(self.places)
        took_s = place * self.alone_s
        if took_s > self.client.timeout_s or place > self.hangs_from:
            self.waited_s.append(self.client.timeout_s)
            raise NoAnswer("not in time")
        asked = cast("dict[str, object]", body)
        text = KNOWN.texts[cast("int", asked["max_tokens"])]
        part = json.dumps({"choices": [{"text": text}]})
        if asked.get("stream"):
            return Reply(200, "text/event-stream", f"data: {part}\n\ndata: [DONE]\n\n".encode())
        return Reply(200, "application/json", part.encode())


def asked_many(wire: Queue) -> None:
    """Put many requests to an engine at once, waiting for it as its pace asks."""
    subject = Subject(
        api=Api("completions"),
        wire=wire,
        oracle=cast("Oracle", None),
        known=(KNOWN,),
        ignores_eos=True,
        context=64,
        connections=16,
    )
    patient = subject.patient(clock(wire.alone_s).__next__)
    connections(replace(patient, wire=replace(cast("Queue", patient.wire), places=count(1))))


def test_a_slow_engine_that_answers_each_of_many_in_its_turn_is_not_refused() -> None:
    asked_many(Queue(Client("http://127.0.0.1:1", timeout_s=2.0), alone_s=1.0))


def test_a_hanging_engine_is_refused_as_soon_as_its_pace_says() -> None:
    wire = Queue(Client("http://127.0.0.1:1", timeout_s=2.0), alone_s=0.02, hangs_from=8)
    with pytest.raises(Broken, match="8 of 16 requests at once are not answered"):
        asked_many(wire)
    assert max(wire.waited_s) == 2.0
