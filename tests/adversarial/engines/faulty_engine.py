"""A small completions server around the plain model: honest, or broken in one known way.

python faulty_engine.py --model DIR --port N [--fault NAME] [--when PHASE] [--hide FEATURE …]

A request whose `model` is a fault's name, or PHASE.NAME, is answered by a model with that fault.

`--hide` takes away what an engine may lack: prompt_logprobs, logprobs, token_ids, id_prompts, and
special_tokens in its text.
"""

import argparse
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from inferproof_remote.serving.faults import FAULTS, HARMLESS, HONEST, When
from inferproof_remote.serving.plain_model import Generated, PlainEngine, PlainModel

PHASES: tuple[When, ...] = ("always", "prefill", "decode", "batch", "reuse")
WHEN: Mapping[str, When] = {phase: phase for phase in PHASES}
HIDEABLE = ("prompt_logprobs", "logprobs", "token_ids", "id_prompts", "special_tokens")


class Desk:
    """Answers requests one at a time, and knows how many wait."""

    def __init__(self, options: argparse.Namespace) -> None:
        dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[options.dtype]
        self._model = PlainModel(options.model, dtype)
        fault = FAULTS[options.fault] if options.fault else HONEST
        self._engines = {"plain": PlainEngine(self._model, fault, options.when)}
        self.tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
        self.hidden = frozenset(options.hide)
        self._turn, self._count = threading.Lock(), threading.Lock()
        self._in_flight = 0

    def complete(self, asked: dict[str, object]) -> dict[str, object]:
        """Return the answer to one request."""
        ids, count = self._ids(asked["prompt"]), int(str(asked["max_tokens"]))
        with self._count:
            self._in_flight += 1
        try:
            with self._turn:
                made = self._engine(str(asked["model"])).generate(
                    ids, count, in_flight=self._in_flight
                )
        finally:
            with self._count:
                self._in_flight -= 1
        choice = self._choice(asked, ids, made)
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(made.ids)}
        return {"object": "text_completion", "choices": [choice], "usage": usage}

    def _engine(self, name: str) -> PlainEngine:
        """Return the engine of a name, made when it is first asked."""
        if name not in self._engines:
            phase, _, fault = name.rpartition(".")
            fault_of = {**FAULTS, **HARMLESS}[fault]
            self._engines[name] = PlainEngine(self._model, fault_of, WHEN.get(phase, "always"))
        return self._engines[name]

    def _ids(self, prompt: object) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt, add_special_tokens=False).ids
        if "id_prompts" in self.hidden or not isinstance(prompt, list):
            raise ValueError("prompt must be a text")
        return [int(each) for each in prompt]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    def _choice(
        self, asked: dict[str, object], ids: list[int], made: Generated
    ) -> dict[str, object]:
        hides = "special_tokens" in self.hidden
        text = self.tokenizer.decode(list(made.ids), skip_special_tokens=hides)
        choice: dict[str, object] = {"index": 0, "text": text, "finish_reason": "length"}
        if "token_ids" not in self.hidden:
            choice["token_ids"] = list(made.ids)
        if asked.get("logprobs") and "logprobs" not in self.hidden:
            choice["logprobs"] = self._legacy(made, int(str(asked["logprobs"])))
        if asked.get("prompt_logprobs") and "prompt_logprobs" not in self.hidden:
            count = int(str(asked["prompt_logprobs"]))
            rows = zip(ids[1:], made.prompt_logprobs, strict=True)
            choice["prompt_logprobs"] = [None, *(self._given(*row, count) for row in rows)]
        return choice

    def _legacy(self, made: Generated, count: int) -> dict[str, object]:
        rows = list(zip(made.ids, made.logprobs, strict=True))
        return {
            "tokens": [f"token_id:{token}" for token, _ in rows],
            "token_logprobs": [float(row[token]) for token, row in rows],
            "top_logprobs": [
                {f"token_id:{each}": value for each, value in self._top(row, count).items()}
                for _, row in rows
            ],
        }

    def _given(self, token: int, row: Tensor, count: int) -> dict[str, object]:
        listed = {token: float(row[token]), **self._top(row, count)}
        return {str(each): {"logprob": value} for each, value in listed.items()}

    @staticmethod
    def _top(row: Tensor, count: int) -> dict[int, float]:
        values, ids = row.topk(count)
        return {int(each): float(value) for each, value in zip(ids, values, strict=True)}


def handler(desk: Desk) -> type[BaseHTTPRequestHandler]:
    """Return the handler class that asks `desk`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            models: dict[str, object] = {"data": [{"id": "plain", "object": "model"}]}
            self._send(200, models if self.path == "/v1/models" else {"status": "ok"})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                self._send(200, desk.complete(asked))
            except ValueError as error:
                self._send(400, {"error": {"message": str(error)}})

        def _send(self, status: int, answer: dict[str, object]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


class Server(ThreadingHTTPServer):
    """One that takes a batch of connections at once."""

    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fault", choices=sorted(FAULTS))
    parser.add_argument("--when", default="always", choices=PHASES)
    parser.add_argument("--hide", nargs="*", default=[], choices=HIDEABLE)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    server = Server(("127.0.0.1", options.port), handler(Desk(options)))
    print(f"port {server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
