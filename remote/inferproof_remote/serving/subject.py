"""What a conformance check works on: one engine, one way to ask, and answers that are known."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from inferproof_remote.serving.client import NoAnswer
from inferproof_remote.serving.known import Known, Oracle
from inferproof_remote.serving.patience import patience_s
from inferproof_remote.serving.wire import Api, Reply, Table, Wire, choices_of, parsed, piece_of

_NOT_THERE = (404, 405, 501)
_DONE = "[DONE]"


class Finding(Exception):
    """What a check found, in our words; `said` is what the engine said."""

    def __init__(self, detail: str, said: str | bytes = "") -> None:
        super().__init__(detail)
        self.said = said if isinstance(said, str) else said.decode("utf-8", "replace")


class Broken(Finding):
    """The engine departs from the interface."""


class Absent(Finding):
    """The engine does not have the feature and says so, or leaves it out of its answer."""


class Inapplicable(Finding):
    """There is nothing to check."""


class Unknown(Finding):
    """The check could not be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One engine as a check sees it."""

    api: Api
    wire: Wire
    oracle: Oracle
    known: tuple[Known, ...]
    ignores_eos: bool
    context: int
    connections: int

    @property
    def model(self) -> str:
        """The name by which the engine calls its model."""
        return self.wire.client.model

    def first(self) -> Known:
        """Return the known request with the most tokens.

        Raises:
            Unknown: there is none.
        """
        if not self.known:
            raise Unknown("no prompt was found whose answer is beyond doubt")
        return max(self.known, key=lambda known: known.whole)

    def patient(self, clock: Callable[[], float] = time.monotonic) -> "Subject":
        """Return the same engine, waited for as its own pace on one known request asks."""
        if not self.known:
            return self
        began_s = clock()
        try:
            self.post(self.first(), max_tokens=self.first().whole)
        except NoAnswer:
            return self
        client = self.wire.client
        least_s, at_once = client.timeout_s, self.connections
        limit_s = patience_s(clock() - began_s, at_once=at_once, least_s=least_s)
        return replace(self, wire=replace(self.wire, client=replace(client, timeout_s=limit_s)))

    def post(self, known: Known, **fields: object) -> Reply:
        """Return what the engine answers to a known request."""
        return self.wire.post(self.api.path, self.api.known(known, self.model, **fields))

    def answer(self, known: Known, **fields: object) -> Table:
        """Return the answer to a known request as JSON.

        Raises:
            Absent: the engine refuses it, as it may.
            Broken: it is no answer.
        """
        reply = self.post(known, **fields)
        refuse_refusal(reply, fields)
        answer = reply.json
        if answer is None or not choices_of(answer):
            raise Broken("status 200 without choices", reply.body)
        if answer.get("error") is not None:
            raise Broken("an error told with status 200", reply.body)
        return answer

    def text(self, known: Known, **fields: object) -> str:
        """Return the text of the first choice."""
        text = self.api.text(choices_of(self.answer(known, **fields))[0])
        if text is None:
            raise Broken("a choice without a text")
        return text

    def parts(self, known: Known, **fields: object) -> list[Table]:
        """Return the parts of a streamed answer.

        Raises:
            Absent: the engine refuses it.
            Broken: it is no stream of JSON that ends with [DONE].
        """
        reply = self.post(known, stream=True, **fields)
        refuse_refusal(reply, fields)
        if not reply.kind.lower().startswith("text/event-stream"):
            raise Broken("a stream whose type is not text/event-stream", reply.kind)
        *parts, last = reply.data() or [""]
        if last.strip() != _DONE or _DONE in parts:
            raise Broken("a stream that does not end with one [DONE]")
        read = [parsed(part) for part in parts]
        found = [part for part in read if part is not None]
        if len(found) < len(read):
            raise Broken("a part of a stream that is no JSON object")
        return found

    def still_answers(self) -> bool:
        """Return whether a plain request is answered."""
        known = self.known[0] if self.known else None
        if known is None:
            return False
        try:
            return self.post(known, max_tokens=1).is_ok
        except NoAnswer:
            return False

    def is_there(self) -> bool:
        """Return whether the engine knows this way to ask at all."""
        known = self.known[0] if self.known else None
        prompt = known.prompt if known else "Hello"
        try:
            body = self.api.asked(prompt, self.model, max_tokens=1)
            return self.wire.post(self.api.path, body).status not in _NOT_THERE
        except NoAnswer:
            return True

    def of(self, known: Known) -> "Subject":
        """Return the same engine with one known request alone."""
        return replace(self, known=(known,))


def refuse_refusal(reply: Reply, fields: Mapping[str, object]) -> None:
    """Raise what an answer means that is not 200: a refusal, or a fault."""
    if reply.is_ok:
        return
    asked = ", ".join(sorted(fields))
    if reply.status // 100 == 4:
        raise Absent(f"refuses {asked} with {reply.status}", reply.body)
    raise Broken(f"answers {asked} with {reply.status}", reply.body)


def same(told: str, expected: str, where: str) -> None:
    """Raise if a text is not the known one."""
    if told != expected:
        raise Broken(f"{where} is not what the model writes: {expected!a}", told)


def joined(parts: list[Table]) -> str:
    """Return the text that a stream's parts are together."""
    return "".join(piece_of(part) for part in parts)
