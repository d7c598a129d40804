"""What an engine can do is read from its answers, whatever it claims."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from inferproof_remote.serving.client import Client
from inferproof_remote.serving.features import Features, probe

WORDS = ["one ", "two ", "three ", "four ", "five ", "six "]
PROMPT = (4, 5, 6)


@contextmanager
def engine(streamed: list[str] | None) -> Generator[Client]:
    """Yield a client of a server that gives text alone, and streams these parts if it streams."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            usage = {"prompt_tokens": len(PROMPT), "completion_tokens": len(WORDS)}
            if asked.get("stream") and streamed is not None:
                parts = [json.dumps({"choices": [{"text": each}]}) for each in streamed]
                body = "".join(f"data: {each}\n\n" for each in [*parts, "[DONE]"])
            else:
                body = json.dumps({"choices": [{"text": "".join(WORDS)}], "usage": usage})
            self.send_response(200)
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
