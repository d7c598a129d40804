"""A small HTTP/1.1 server on one event loop, for our own engines: JSON and event streams."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_MOST_HEAD_BYTES = 1 << 16
_MOST_BODY_BYTES = 64 << 20
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `is_gone` says whether whoever asked has hung up since."""

    method: str
    path: str
    body: bytes
    is_gone: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: HTTPStatus
    body: Json


@dataclass(frozen=True, slots=True)
class Events:
    """A stream of server-sent events, each sent as soon as it is there."""

    lines: AsyncIterator[str]


Handler: TypeAlias = Callable[[Request], Awaitable[Answer | Events]]


class RefusedError(Exception):
    """The request cannot be answered; OpenAI's clients read the reason from the body."""

    def __init__(self, reason: str, *, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(reason)
        self.status = status

    @property
    def answer(self) -> Answer:
        """The reason in OpenAI's form."""
        kind = self.status.phrase.replace(" ", "") + "Error"
        error: dict[str, Json] = {
            "message": str(self),
            "type": kind,
            "param": None,
            "code": self.status.value,
        }
        return Answer(self.status, {"error": error})


async def serve(port: int, handle: Handler) -> None:
    """Answer requests on 127.0.0.1 until the process ends."""
    held: set[asyncio.Task[None] | None] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.add(task := asyncio.current_task())
        try:
            await _converse(reader, writer, handle)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the caller is gone, or never spoke HTTP
        finally:
            held.discard(task)
            writer.close()

    server = await asyncio.start_server(
        connected, "127.0.0.1", port, backlog=_BACKLOG, limit=_MOST_HEAD_BYTES
    )
    await server.serve_forever()


async def _converse(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handler
) -> None:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, path, version = lines[0].split(" ", 2) if lines[0].count(" ") == 2 else ("", "", "")
        headers = {name.strip().lower(): value.strip() for name, _, value in _pairs(lines[1:])}
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > _MOST_BODY_BYTES:
            await _send(writer, RefusedError("no usable Content-Length").answer, close=True)
            return
        if "transfer-encoding" in headers:
            refused = RefusedError("give a Content-Length", status=HTTPStatus.LENGTH_REQUIRED)
            await _send(writer, refused.answer, close=True)
            return
        body = await reader.readexactly(int(length))
        close = headers.get("connection", "").lower() == "close" or version != "HTTP/1.1"
        request = Request(method, path.partition("?")[0], body, reader.at_eof)
        await _respond(writer, await _answered(handle, request), close=close)
        if close:
            return


def _pairs(lines: list[str]) -> list[tuple[str, str, str]]:
    return [line.partition(":") for line in lines if line]


async def _answered(handle: Handler, request: Request) -> Answer | Events:
    try:
        return await handle(request)
    except RefusedError as refused:
        return refused.answer


async def _respond(writer: asyncio.StreamWriter, answer: Answer | Events, *, close: bool) -> None:
    if isinstance(answer, Answer):
        await _send(writer, answer, close=close)
        return
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    writer.write(f"{head}{_connection(close)}Transfer-Encoding: chunked\r\n\r\n".encode())
    async for line in answer.lines:
        data = f"data: {line}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _send(writer: asyncio.StreamWriter, answer: Answer, *, close: bool) -> None:
    data = json.dumps(answer.body, allow_nan=False).encode()
    head = f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    writer.write(f"{head}{_connection(close)}\r\n".encode() + data)
    await writer.drain()


def _connection(close: bool) -> str:
    return "Connection: close\r\n" if close else ""
