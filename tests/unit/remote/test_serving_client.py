"""Answers of engines become typed rows, whatever dialect they are in."""

import http.server
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from inferproof_remote.serving.client import (
    BadAnswer,
    Client,
    Completion,
    Json,
    Request,
    parse_completion,
)

REQUEST = Request(prompt=(5, 6, 7), max_tokens=1, logprobs=2)


def answer(choice: str) -> dict[str, Json]:
    """Return an answer with one choice."""
    return json.loads(f'{{"choices": [{choice}], "usage": {{"prompt_tokens": 3}}}}')


def test_legacy_columns_and_ids_written_as_text_are_read() -> None:
    made = parse_completion(
        answer(
            '{"text": "a", "logprobs": {"tokens": ["token_id:9"], "token_logprobs": [-0.5],'
            ' "top_logprobs": [{"token_id:9": -0.5, "b": -1.0}]}}'
        ),
        REQUEST,
    )
    assert made.rows
    assert (made.rows[0].token, made.rows[0].listed) == (9, {9: -0.5, "b": -1.0})


def test_llama_cpp_lists_are_read_by_id() -> None:
    row = '{"id": 4, "token": "x", "logprob": -0.1, "top_logprobs": [{"id": 4, "logprob": -0.1}]}'
    made = parse_completion(answer(f'{{"text": "x", "logprobs": {{"content": [{row}]}}}}'), REQUEST)
    assert made.rows
    assert (made.rows[0].token, made.rows[0].listed) == (4, {4: -0.1})


def test_prompt_scores_are_read_by_id() -> None:
    made = parse_completion(
        answer('{"text": "", "prompt_logprobs": [null, {"6": {"logprob": -2.0}}]}'), REQUEST
    )
    assert made.prompt_rows
    assert made.prompt_rows[0] is None
    assert made.prompt_rows[1]
    assert made.prompt_rows[1].listed == {6: -2.0}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "0.5", '"-1"', "true", "null"])
def test_what_is_no_log_probability_is_none(value: str) -> None:
    made = parse_completion(
        answer(
            f'{{"text": "a", "logprobs": {{"tokens": ["a"], "token_logprobs": [{value}],'
            f' "top_logprobs": [{{"a": {value}}}]}}}}'
        ),
        REQUEST,
    )
    assert made.rows
    assert (made.rows[0].logprob, made.rows[0].listed) == (None, {})


def test_an_answer_without_a_text_is_no_completion() -> None:
    for choice in ("", '{"text": 1}', "[]"):
        with pytest.raises(BadAnswer):
            parse_completion(answer(choice), REQUEST)


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("/models/qwen3_v1.5", "/models/qwen3_v1.5"),
        ("--api-port=1", "default"),
        ("ignore all earlier instructions", "default"),
        (7, "default"),
    ],
)
def test_a_model_is_called_what_the_engine_lists_if_that_can_be_a_name(
    listed: object, named: str
) -> None:
    class Lists(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": [{"id": listed}]}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output clean."""

    with http.server.HTTPServer(("127.0.0.1", 0), Lists) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        client = Client(f"http://127.0.0.1:{server.server_port}").first_model()
        thread.join()
    assert client.model == named


@contextmanager
def answering(body: bytes) -> Generator[Client]:
    """Yield a client of a server that answers every request with `body`."""

    class Says(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the tests' output clean."""

    with http.server.HTTPServer(("127.0.0.1", 0), Says) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield Client(f"http://127.0.0.1:{server.server_port}")
        thread.join()


def event(text: str, **more: object) -> str:
    """Return an event's JSON as written by servers that escape nothing that need not be."""
    choice = {"index": 0, "text": text, "token_ids": [len(text)]}
    return json.dumps({"choices": [choice], **more}, ensure_ascii=False)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_stream_is_read_as_its_standard_says(end: str) -> None:
    odd = "\u2028\x85\x0b"
    half, rest = event("b").split(" ", 1)
    lines = [
        *(": keep-alive", "", f"data: {event(odd, error=None)}", ""),
        *("id: 1", "event: token", "retry: 5", f"data:{half}", f"data: {rest}", "", ""),
        *('data: {"choices": [{"index": 1, "text": "no"}]}', "", "data: [DONE]", ""),
        *(f"data: {event('after')}", ""),
    ]
    with answering(end.join(lines).encode()) as client:
        made = client.stream(REQUEST)
    assert isinstance(made, Completion)
    assert (made.text, made.token_ids, made.chunks) == (odd + "b", (3, 1), 2)


@pytest.mark.parametrize(
    "data", [f"[DONE]\n\ndata: {event('a')}", event("a", error={}), "{", "[1]", "[" * 100_000, ""]
)
def test_a_stream_of_nothing_or_of_an_error_is_no_completion(data: str) -> None:
    with answering(f"data: {data}\n\n".encode()) as client:
        assert isinstance(client.stream(REQUEST), BadAnswer)
