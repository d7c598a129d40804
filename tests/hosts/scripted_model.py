"""A model API on loopback that plays a given agent, so that real agent hosts can run offline.

It speaks as much of Anthropic Messages and OpenAI Responses as the hosts ask for. Where the agent
stands follows from the tool results in the request alone, so a host may repeat a request.
"""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, TypeAlias

SERVER = "mcp__inferproof"
Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool of ours that the agent wants called."""

    tool: str
    arguments: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The agent's next call, its place in the conversation, and how the host spells its tool."""

    number: int
    call: Call
    wire: Json

    @property
    def id(self) -> str:
        return f"call_{self.number}"

    @property
    def arguments(self) -> str:
        return json.dumps(self.call.arguments)


Agent: TypeAlias = Callable[[Sequence[Answer]], Call | None]
"""What to call next, given the tools' answers so far; None when the work is done."""


@dataclass(slots=True, kw_only=True)
class Model:
    """The served model: where it listens, and what the host sent to it."""

    agent: Agent
    url: str = ""
    requests: list[Json] = field(default_factory=list[Json])

    @property
    def conversation(self) -> list[Json]:
        """The requests that offer tools; others ask for titles and summaries."""
        return [request for request in self.requests if request.get("tools")]

    @property
    def offered(self) -> set[str]:
        """The names of our tools that the very first request of the conversation offers."""
        return set(_wire_names(self.conversation[0]))

    @property
    def answers(self) -> list[Answer]:
        """Every answer of our tools, as the host showed it to the model."""
        return _answers(self.conversation[-1])

    def reply(self, request: Json) -> "Reply | None":
        """Return the agent's next call, or None when there is none."""
        self.requests.append(request)
        names = _wire_names(request)
        answers = _answers(request)
        call = self.agent(answers) if names else None
        if call is None:
            return None
        return Reply(number=len(answers), call=call, wire=names[call.tool])


@contextmanager
def serving(agent: Agent) -> Generator[Model]:
    """Serve `agent` as a model until the end of the block."""
    model = Model(agent=agent)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, model)) as server:
        model.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            server.shutdown()
            thread.join()


def _wire_names(request: Json) -> dict[str, Json]:
    """Return our tools by their own names, each as the host wants it called."""
    found: dict[str, Json] = {}
    for tool in request.get("tools", []):
        name = str(tool.get("name", ""))
        if tool.get("type") == "namespace" and name == SERVER:
            found |= {
                each["name"]: {"name": each["name"], "namespace": name} for each in tool["tools"]
            }
        elif name.startswith(f"{SERVER}__"):
            found[name.removeprefix(f"{SERVER}__")] = {"name": name}
    return found


def _answers(request: Json) -> list[Answer]:
    if "messages" in request:
        blocks = [block for message in request["messages"] for block in _blocks(message)]
        results = [block["content"] for block in blocks if block["type"] == "tool_result"]
    else:
        items = request["input"]
        results = [item["output"] for item in items if item["type"] == "function_call_output"]
    return [_answer(_text(result)) for result in results]


def _blocks(message: Json) -> list[Json]:
    return [] if isinstance(message["content"], str) else message["content"]


def _text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _answer(text: str) -> Answer:
    """Return a result's JSON object, which a host may introduce with words of its own."""
    try:
        return json.loads(text[text.index("{") :])
    except ValueError:
        return {"ok": False, "what": text}


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, model: Model, *arguments: Any) -> None:
        self._model = model
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send("application/json", b"")

    def do_GET(self) -> None:
        self._send("application/json", b'{"object": "list", "data": [], "models": []}')

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = self._model.reply(request)
        whole, events = (_message if "messages" in request else _response)(reply)
        if not request.get("stream"):
            self._send("application/json", json.dumps(whole).encode())
            return
        lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._send("text/event-stream", "".join(lines).encode())

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _message(reply: Reply | None) -> tuple[Json, Iterator[Json]]:
    """Return an Anthropic message: whole, and as stream events."""
    block, start, delta = _block(reply)
    stop = "end_turn" if reply is None else "tool_use"
    usage = {"input_tokens": 1, "output_tokens": 1}
    empty: Json = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    events: list[Json] = [
        {"type": "message_start", "message": empty},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": usage,
        },
        {"type": "message_stop"},
    ]
    return {**empty, "content": [block], "stop_reason": stop}, iter(events)


def _block(reply: Reply | None) -> tuple[Json, Json, Json]:
    """Return a content block, how its stream starts, and what is then added."""
    if reply is None:
        block = {"type": "text", "text": "done"}
        return block, {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}
    start: Json = {"type": "tool_use", "id": reply.id, "input": {}, **reply.wire}
    delta = {"type": "input_json_delta", "partial_json": reply.arguments}
    return {**start, "input": reply.call.arguments}, start, delta


def _response(reply: Reply | None) -> tuple[Json, Iterator[Json]]:
    """Return an OpenAI response: whole, and as stream events."""
    item = _item(reply)
    whole: Json = {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": "scripted",
        "output": [item],
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    }
    started: Json = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [
        {"type": "response.created", "response": started},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return whole, iter([{**event, "sequence_number": n} for n, event in enumerate(events)])


def _item(reply: Reply | None) -> Json:
    if reply is None:
        text: Json = {"type": "output_text", "text": "done", "annotations": []}
        parts: Json = {"role": "assistant", "status": "completed", "content": [text]}
        return {"type": "message", "id": "msg_1", **parts}
    return {
        "type": "function_call",
        "id": f"fc_{reply.number}",
        "call_id": reply.id,
        "arguments": reply.arguments,
        "status": "completed",
        **reply.wire,
    }
