"""One engine's HTTP as it is on the wire: what was posted, which status and bytes came back.

Where the typed client reads completions, this keeps what is wrong with them: statuses, headers,
chunks that are no JSON. `Api` is what differs between completions and chats.
"""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from inferproof_remote.serving.client import Client, NoAnswer
from inferproof_remote.serving.known import Known
from inferproof_remote.serving.sse import events

ApiName: TypeAlias = Literal["completions", "chat"]
Table: TypeAlias = Mapping[str, object]
_LARGEST = 64 << 20
_DONE = "[DONE]"
_EMPTY: Table = {}


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole answer."""

    status: int
    kind: str
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether the engine says that all is well."""
        return self.status == http.client.OK

    @property
    def json(self) -> Table | None:
        """The body as an object; None if it is none."""
        return parsed(self.body)

    def data(self) -> list[str]:
        """Return what each event of the stream carries, comments and empty ones left out."""
        parts = (
            "\n".join(value for name, value in fields if name == "data")
            for fields in events(self.body)
        )
        return [part for part in parts if part]


@dataclass(frozen=True, slots=True)
class Wire:
    """Talks HTTP to one engine."""

    client: Client

    def post(self, path: str, body: bytes | Table) -> Reply:
        """Return what the engine answers to `body`, which is sent as it is if it is bytes.

        Raises:
            NoAnswer: the connection ended, or nothing came in time.
        """
        connection, base = self.client.connection()
        with contextlib.closing(connection):
            try:
                connection.request("POST", base + path, encoded(body), _JSON)
                response = connection.getresponse()
                kind = response.headers.get("Content-Type", "")
                return Reply(response.status, kind, response.read(_LARGEST))
            except (OSError, http.client.HTTPException) as error:
                raise NoAnswer(f"no answer to {path}: {type(error).__name__}") from error

    def stream(self, path: str, body: Table, watch: threading.Condition, *, tokens: int) -> "Held":
        """Return a stream of `tokens` that is read as it comes; `watch` is told of every text."""
        connection, base = self.client.connection()
        held = Held(connection, watch, tokens)
        thread = threading.Thread(target=held.read, args=(base + path, body), daemon=True)
        held.thread = thread
        thread.start()
        return held


_JSON = {"Content-Type": "application/json"}


class Held:
    """A stream under way: how many pieces of text have come, and whether it is over."""

    def __init__(
        self, connection: http.client.HTTPConnection, watch: threading.Condition, tokens: int
    ) -> None:
        self.tokens = tokens
        self.pieces = 0
        self.is_over = False
        self.thread: threading.Thread | None = None
        self._connection = connection
        self._watch = watch

    def read(self, path: str, body: Table) -> None:
        """Count texts until the stream ends or is hung up."""
        try:
            self._connection.request("POST", path, encoded(body), _JSON)
            response = self._connection.getresponse()
            while response.status == http.client.OK and (line := response.readline()):
                event = parsed(line.removeprefix(b"data:"))
                if line.startswith(b"data:") and event and piece_of(event):
                    self._note()
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass  # hung up: by the engine, or by `hang_up`, which takes the socket away
        with self._watch:
            self.is_over = True
            self._watch.notify_all()

    def hang_up(self) -> None:
        """Close the connection, as a user does who has read enough."""
        sock = self._connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(2)
            sock.close()

    def _note(self) -> None:
        with self._watch:
            self.pieces += 1
            self._watch.notify_all()


@dataclass(frozen=True, slots=True)
class Api:
    """One of the two ways to ask, and how its answers are laid out."""

    name: ApiName

    @property
    def path(self) -> str:
        """Where it is asked."""
        return "/v1/completions" if self.name == "completions" else "/v1/chat/completions"

    @property
    def objects(self) -> tuple[str, str]:
        """What a whole answer and a part of a stream call themselves."""
        if self.name == "completions":
            return "text_completion", "text_completion"
        return "chat.completion", "chat.completion.chunk"

    def asked(self, prompt: str, model: str, **fields: object) -> dict[str, object]:
        """Return the body of a request, greedy unless `fields` say otherwise."""
        asked: dict[str, object] = {"model": model, "temperature": 0, **fields}
        if self.name == "completions":
            return {"prompt": prompt, **asked}
        return {"messages": [{"role": "user", "content": prompt}], **asked}

    def known(self, known: Known, model: str, **fields: object) -> dict[str, object]:
        """Return the body that asks for a known answer."""
        if known.bias:
            fields["logit_bias"] = {str(token): more for token, more in known.bias.items()}
        return self.asked(known.prompt, model, **fields)

    def text(self, choice: Table) -> str | None:
        """Return the text of a whole answer's choice."""
        holder = choice if self.name == "completions" else table(choice.get("message"))
        text = holder.get("text" if self.name == "completions" else "content")
        return text if isinstance(text, str) else None


def encoded(body: bytes | Table) -> bytes:
    """Return a body as it is sent."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def parsed(text: str | bytes) -> Table | None:
    """Return a JSON object; None where there is none."""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("Table", value) if isinstance(value, dict) else None


def table(value: object) -> Table:
    """Return `value` if it is an object, else an empty one."""
    return cast("Table", value) if isinstance(value, dict) else _EMPTY


def listed(value: object) -> Sequence[object]:
    """Return `value` if it is a list, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else ()


def choices_of(answer: Table) -> list[Table]:
    """Return the choices of an answer or of a part."""
    return [table(each) for each in listed(answer.get("choices"))]


def piece_of(part: Table) -> str:
    """Return the text that a part of a stream adds, in either way to ask."""
    texts: Iterator[object] = (
        choice.get("text") or table(choice.get("delta")).get("content")
        for choice in choices_of(part)
    )
    return "".join(each for each in texts if isinstance(each, str))
