"""A small client of OpenAI-compatible completions, over TCP or a unix socket.

An engine's answer is hostile text: it is parsed into typed rows here and nowhere else. A token is
named by its id where the engine gives one, else by the text that the engine wrote for it.
"""

import http.client
import json
import re
import socket
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, cast

from inferproof_remote.serving.rows import (
    Json,
    Row,
    count_of,
    ids_of,
    prompt_rows_of,
    rows_of,
)
from inferproof_remote.serving.sse import BadEvent, Part, events, read_part

_LARGEST_ANSWER = 256 << 20
_MODEL_NAME = re.compile(r"[A-Za-z0-9/._][A-Za-z0-9/._:@+-]{0,255}")  # it goes onto command lines


class EngineError(Exception):
    """The engine did not answer, or not with a completion."""


class NoAnswer(EngineError):
    """Nothing came back: no connection, a broken one, or no answer in time."""


class BadAnswer(EngineError):
    """Something came back that is no completion: an error status or text that does not parse."""


class Refused(BadAnswer):
    """The engine says that the request is at fault: a status from 400 to 499."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One completion, greedy by default.

    `prompt_scores` asks for the prompt's own log-probabilities too.
    """

    prompt: tuple[int, ...] | str
    max_tokens: int
    logprobs: int | None = None
    prompt_scores: str = ""
    ignore_eos: bool = True
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None

    def body(self, model: str) -> dict[str, Json]:
        """Return the JSON that is posted; `prompt_scores` is '', 'prompt_logprobs' or 'echo'."""
        prompt: Json = self.prompt if isinstance(self.prompt, str) else [*self.prompt]
        body: dict[str, Json] = {
            "model": model,
            "prompt": prompt,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "ignore_eos": self.ignore_eos,
            "return_token_ids": True,
        }
        if self.temperature > 0:
            body["top_p"] = self.top_p  # some servers cut the tail unless they are told not to
        optional = {"top_k": self.top_k, "min_p": self.min_p, "seed": self.seed}
        body |= {name: value for name, value in optional.items() if value is not None}
        if self.logprobs is not None:
            body["logprobs"] = self.logprobs
        if self.prompt_scores == "prompt_logprobs":
            body["prompt_logprobs"] = self.logprobs or 1
        if self.prompt_scores == "echo":
            body["echo"] = True
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer. Absent parts are None; `chunks` counts the parts of a streamed answer."""

    text: str
    finish_reason: str
    token_ids: tuple[int, ...] | None = None
    rows: tuple[Row, ...] | None = None
    prompt_rows: tuple[Row | None, ...] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    chunks: int = 1


Answer: TypeAlias = "Completion | EngineError"


class Engine(Protocol):
    """Whatever completes prompts: a server behind HTTP, or a model in this process."""

    def complete(self, request: Request) -> Answer:
        """Return the answer, or the error in its place."""
        ...

    def complete_together(self, requests: Sequence[Request]) -> list[Answer]:
        """Return the answers of requests that were all in flight at the same time."""
        ...

    def complete_amid(self, running: Sequence[Request], late: Request) -> list[Answer]:
        """Return the answers of `running`, then that of `late`, sent while those decode."""
        ...


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True, slots=True)
class Client:
    """Talks to one endpoint: `http://host:port`, `https://…` or `unix:/path/of.sock`.

    Fields that it `leaves_out` are in no request, whatever is asked.
    """

    endpoint: str
    model: str = "default"
    timeout_s: float = 120.0
    leaves_out: frozenset[str] = frozenset()

    def complete(self, request: Request) -> Answer:
        """Return the answer, or the error in its place."""
        try:
            answer = self._exchange("POST", "/v1/completions", self._body(request))
            return parse_completion(_parse(answer), request)
        except EngineError as error:
            return error

    def complete_together(self, requests: Sequence[Request]) -> list[Answer]:
        """Return the answers of requests that were all in flight at the same time."""
        barrier = threading.Barrier(len(requests))

        def one(request: Request) -> Answer:
            barrier.wait()
            return self.complete(request)

        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(one, requests))

    def complete_amid(self, running: Sequence[Request], late: Request) -> list[Answer]:
        """Return the answers of `running`, then that of `late`, sent while those decode.

        That they do is seen by the first one, sent once more as a stream: it has begun to answer.
        """
        begun = threading.Event()
        with ThreadPoolExecutor(len(running) + 1) as pool:
            pilot = pool.submit(self._follow, replace(running[0], logprobs=None), begun)
            sent = [pool.submit(self.complete, each) for each in running]
            begun.wait(self.timeout_s)
            last = self.complete(late)
            pilot.result()
            return [*(each.result() for each in sent), last]

    def _follow(self, request: Request, begun: threading.Event) -> None:
        body = self._body(request) | {"stream": True}
        try:
            self._exchange("POST", "/v1/completions", body, begun)
        except EngineError:
            return
        finally:
            begun.set()

    def stream(self, request: Request) -> Answer:
        """Return a streamed answer put together again."""
        body = self._body(request)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            return _join(self._exchange("POST", "/v1/completions", body))
        except EngineError as error:
            return error

    def first_model(self) -> "Client":
        """Return a client that names the first model that the engine lists; else this one.

        What could be no model's name stays unnamed.
        """
        try:
            listed = _parse(self._exchange("GET", "/v1/models", None)).get("data")
        except EngineError:
            return self
        first = listed[0] if isinstance(listed, list) and listed else None
        name = first.get("id") if isinstance(first, dict) else None
        if not isinstance(name, str) or not _MODEL_NAME.fullmatch(name):
            return self
        return replace(self, model=name)

    def _body(self, request: Request) -> dict[str, Json]:
        body = request.body(self.model)
        return {name: value for name, value in body.items() if name not in self.leaves_out}

    def _exchange(
        self,
        method: str,
        path: str,
        body: Mapping[str, Json] | None,
        begun: threading.Event | None = None,
    ) -> bytes:
        """Return what is answered; `begun` is set once its first line has come."""
        connection, base = self.connection()
        headers = {"Content-Type": "application/json"}
        sent = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, base + path, sent, headers)
            response = connection.getresponse()
            answer = response.readline(_LARGEST_ANSWER) if begun else b""
            if begun:
                begun.set()
            answer += response.read(_LARGEST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"{self.endpoint} did not answer {path}: {error!r}") from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            said = answer[:200].decode("utf-8", "replace")
            kind = Refused if response.status // 100 == 4 else BadAnswer
            raise kind(f"{self.endpoint} answered {path} with {response.status}: {said}")
        return answer

    def connection(self) -> tuple[http.client.HTTPConnection, str]:
        """Return a new connection, not opened yet, and what goes before every path."""
        if self.endpoint.startswith("unix:"):
            return _UnixConnection(self.endpoint.removeprefix("unix:"), self.timeout_s), ""
        parts = urllib.parse.urlsplit(self.endpoint)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(parts.netloc, timeout=self.timeout_s), parts.path.rstrip("/")


def parse_completion(answer: Mapping[str, Json], request: Request) -> Completion:
    """Return the first choice of `answer` as typed values.

    Raises:
        BadAnswer: it has no choice with a text.
    """
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("text"), str):
        raise BadAnswer("the answer has no choice with a text")
    usage = answer.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    rows = rows_of(choice.get("logprobs"))
    prompt_rows = prompt_rows_of(choice.get("prompt_logprobs", answer.get("prompt_logprobs")))
    prompt_tokens = count_of(counts.get("prompt_tokens"))
    if request.prompt_scores == "echo" and rows is not None:
        split = _echo_length(request, prompt_tokens)
        prompt_rows, rows = (None, *rows[1:split]), rows[split:]
    return Completion(
        text=str(choice["text"]),
        finish_reason=str(choice.get("finish_reason") or ""),
        token_ids=ids_of(choice.get("token_ids")),
        rows=rows,
        prompt_rows=prompt_rows,
        prompt_tokens=prompt_tokens,
        completion_tokens=count_of(counts.get("completion_tokens")),
    )


def _echo_length(request: Request, prompt_tokens: int | None) -> int:
    return prompt_tokens or 0 if isinstance(request.prompt, str) else len(request.prompt)


def _parse(answer: bytes) -> dict[str, Json]:
    try:
        parsed: Json = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"the answer is no JSON: {answer[:80]!r}") from error
    if not isinstance(parsed, dict):
        raise BadAnswer("the answer is no JSON object")
    return parsed


def _join(stream: bytes) -> Completion:
    """Return the parts of a stream as one answer; parts without text are not counted."""
    parts: list[Part] = []
    for fields in events(stream):
        try:
            part = read_part(fields)
        except BadEvent as error:
            raise BadAnswer(f"the stream has {error}") from error
        if part.is_done:
            break
        parts.append(part)
    texts = [part.text for part in parts if part.text]
    ids = [one for part in parts for one in part.ids or ()]
    if not texts and not ids:
        raise BadAnswer("the stream has no part with a text")
    reasons = [part.finish_reason for part in parts if part.finish_reason]
    usage = next((part.usage for part in reversed(parts) if part.usage), None)
    counts = cast("dict[str, Json]", usage) if isinstance(usage, dict) else {}
    return Completion(
        text="".join(texts),
        finish_reason=reasons[-1] if reasons else "",
        token_ids=ids_of(cast("list[Json]", ids)) if ids else None,
        prompt_tokens=count_of(counts.get("prompt_tokens")),
        completion_tokens=count_of(counts.get("completion_tokens")),
        chunks=len(texts),
    )
