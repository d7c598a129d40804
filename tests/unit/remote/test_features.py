"""What an engine can do is read from its answers, whatever it claims."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from inferproof_remote.serving.client import Client
from inferproof_remote.serving.features import Features, probe, suited

WORDS = ["one ", "two ", "three ", "four ", "five ", "six "]
PROMPT = (4, 5, 6)


@contextmanager
def engine(streamed: list[str] | None, *refused: str) -> Generator[Client]:
    """Yield a client of a server that gives text alone, and streams these parts if it streams.

    It answers 400 to a request with one of the `refused` fields.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            usage = {"prompt_tokens": len(PROMPT), "completion_tokens": len(WORDS)}
            if asked.get("stream") and streamed is not None:
                parts = [json.dumps({"choices": [{"text": each}]}) for each in streamed]
                body = "".join(f"data: {each}\n\n" for each in [*parts, "[DONE]"])
            else:
                body = json.dumps({"choices": [{"text": "".join(WORDS)}], "usage": usage})
            self.send_response(400 if asked.keys() & set(refused) else 200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Client(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("streamed", "is_stream"),
    [(WORDS, True), (["".join(WORDS)], False), ([], False), (None, False)],
    ids=["word by word", "all at once", "nothing", "not at all"],
)
def test_an_engine_streams_if_its_text_comes_in_parts(
    streamed: list[str] | None, is_stream: bool
) -> None:
    with engine(streamed) as client:
        found = probe(client, PROMPT, "four five six", logprobs=5)
    assert found == Features(id_prompts=True, ignore_eos=True, stream=is_stream)


@pytest.mark.parametrize(
    ("refused", "left_out"),
    [
        ([], []),
        (["return_token_ids"], ["return_token_ids"]),
        (["return_token_ids", "ignore_eos"], ["return_token_ids", "ignore_eos"]),
    ],
)
def test_a_field_that_an_engine_refuses_is_left_out_and_no_other(
    refused: list[str], left_out: list[str]
) -> None:
    with engine(WORDS, *refused) as client:
        assert suited(client).leaves_out == frozenset(left_out)


def test_an_engine_that_refuses_all_that_it_does_not_know_shows_what_it_has() -> None:
    unknown = ("return_token_ids", "ignore_eos", "logprobs", "prompt_logprobs", "echo")
    with engine(WORDS, *unknown) as client:
        found = probe(suited(client), PROMPT, "four five six", logprobs=5)
    assert found == Features(id_prompts=True, ignore_eos=True, stream=True)
